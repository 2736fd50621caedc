"""Medians, their intervals and ratios from interleaved rounds.

A round measures every system once, in a burst, and counts as one observation: the burst's median.
Bursts of one round lie close in time and share the machine's mood, so ratios are resampled by
rounds (a paired bootstrap; Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, 6.4).
"""

import math

import numpy as np

RESAMPLES = 2000
INTERVAL = (2.5, 97.5)  # percentiles: 95 %


def summarize(rounds, peers, reference, rivals=None):
    """Summarises one length.

    rounds: {system: one burst median per round}, in µs, round i of all systems taken together;
    peers: the systems that compete; reference: the system compared with them, or None; rivals:
    those that the best peer is sought among, by default all of them.
    Returns (systems, comparison): systems maps a system to its median, its 95 % interval and the
    rounds themselves (`samples`);
    comparison has best_peer and, with a reference, `ratio` (best peer's median time over the
    reference's: above 1 the reference is faster) with its interval and `ratio_to` every peer.
    """
    names = list(rounds)
    table = np.array([rounds[name] for name in names], dtype=np.float64)
    medians = dict(zip(names, np.median(table, axis=1)))
    picks = np.random.default_rng(0).integers(0, table.shape[1], (RESAMPLES, table.shape[1]))
    resampled = dict(zip(names, np.median(table[:, picks], axis=2)))

    def interval(values):
        low, high = np.percentile(values, INTERVAL)
        return float(low), float(high)

    systems = {}
    for name in names:
        low, high = interval(resampled[name])
        systems[name] = {"median": float(medians[name]), "low": low, "high": high,
                         "samples": [float(us) for us in rounds[name]]}
    comparison = {"best_peer": None, "ratio": None}
    rivals = [peer for peer in peers if rivals is None or peer in rivals]
    if peers and reference is not None:
        comparison["ratio_to"] = {
            peer: float(medians[peer] / medians[reference]) for peer in peers}
    if rivals:
        best = min(rivals, key=medians.get)
        comparison["best_peer"] = best
        if reference is not None:
            comparison["ratio"] = float(medians[best] / medians[reference])
            comparison["ratio_low"], comparison["ratio_high"] = interval(
                resampled[best] / resampled[reference])
    return systems, comparison


def geometric_mean(values, weights):
    """Returns the weighted geometric mean; None when there is nothing to average."""
    total = sum(weights)
    if not values or total <= 0:
        return None
    return math.exp(sum(w * math.log(v) for v, w in zip(values, weights, strict=True)) / total)
