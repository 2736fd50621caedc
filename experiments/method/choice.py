"""What the trials of one campaign would have chosen, had less of them been cross-evaluated, and how
a search went on: from the rows of `nimble db show trials`, in the order in which they were made."""

import math
import re

import numpy as np


def size_of(trial):
    """Returns the one extent of a trial's shape, as it is written: "s0=64"."""
    return int(re.findall(r"\d+", trial["shape"].rpartition("=")[2])[0])


def searched(trials, size):
    """Returns [(configuration, ns)] of the search at a size, in its order; what failed has None."""
    return [(t["configuration"], t["median_ns"]) for t in trials
            if t["role"] in ("search", "baseline") and size_of(t) == size]


def fastest(trials, size, k):
    """Returns the k configurations that were the fastest in the search, the fastest first."""
    best = {}
    for config, ns in searched(trials, size):
        if ns is not None:
            best[config] = min(ns, best.get(config, math.inf))
    return sorted(best, key=best.get)[:k]


def crossed(trials):
    """Returns {configuration: {size: ns}} of the search and the cross-evaluation; the verification
    has further sizes, of a few finalists alone."""
    out = {}
    for t in trials:
        if t["median_ns"] is not None and t["role"] in ("cross", "search"):
            sizes = out.setdefault(t["configuration"], {})
            sizes[size_of(t)] = min(t["median_ns"], sizes.get(size_of(t), math.inf))
    return out


def measured_sizes(trials):
    """Returns the sizes at which a campaign timed anything, whatever it was for."""
    return {size_of(t) for t in trials if t["median_ns"] is not None}


def one_configuration(trials, size, k, weight):
    """Returns the configuration that loses least among the k fastest of the search, as the paper
    keeps one, and how many there were to choose from. weight(size) ≥ 0. Only sizes count at which
    all were measured that are compared; of k = 1, or where none was cross-evaluated, it is the
    fastest of the search."""
    among = fastest(trials, size, k)
    if not among:
        return None, 0
    times = crossed(trials)
    most = max(len(times.get(config, {})) for config in among)
    # The cross-evaluation drops candidates that are far behind, and a budget those that come last.
    whole = [config for config in among if len(times.get(config, {})) == most]
    sizes = set.intersection(*(set(times[config]) for config in whole))
    total = sum(weight(s) for s in sizes)
    if len(whole) < 2 or not total:
        return among[0], 1

    def loss(config):
        return sum(weight(s) * math.log(times[config][s] / min(times[c][s] for c in whole))
                   for s in sizes) / total
    return min(whole, key=loss), len(whole)


def nearest_weight(histogram, sizes):
    """Returns weight(size): how often lengths occur that lie nearest to it, by ratio."""
    weights = dict.fromkeys(sizes, 0)
    for length, count in histogram.items():
        weights[min(sizes, key=lambda s: abs(math.log(s / length)))] += count
    return lambda size: weights.get(size, 0)


def ranks(values):
    """Returns ranks from 0, equal values share the mean of theirs."""
    values = np.asarray(values, dtype=float)
    order = np.argsort(values, kind="stable")
    out = np.empty(len(values))
    out[order] = np.arange(len(values))
    for value in np.unique(values):
        out[values == value] = out[values == value].mean()
    return out


def rank_correlation(a, b):
    """Returns Spearman's, or None where one of both is constant."""
    a, b = ranks(a), ranks(b)
    if a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def correlations(trials, size, fewest=4):
    """Returns [(round, Spearman's)] between what the model predicted and what was measured then,
    of the rounds that have so many predicted points."""
    rounds = {}
    for t in trials:
        if t["role"] == "search" and size_of(t) == size and t["median_ns"] and t["predicted_ns"]:
            rounds.setdefault(t["round"], []).append((t["predicted_ns"], t["median_ns"]))
    out = []
    for number, pairs in sorted(rounds.items()):
        if len(pairs) >= fewest and (found := rank_correlation(*zip(*pairs))) is not None:
            out.append((number, found))
    return out


def best_so_far(times, trials):
    """Returns the best time after each of the first `trials`; before there is any it is infinite."""
    out, best = [], math.inf
    for ns in times[:trials]:
        best = min(best, ns if ns is not None else math.inf)
        out.append(best)
    return out


def trials_to_reach(times, target):
    """Returns after how many trials a search is at `target` or below; None: never."""
    for number, best in enumerate(best_so_far(times, len(times)), 1):
        if best <= target:
            return number
    return None
