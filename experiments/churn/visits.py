"""Shapes in a row: which are drawn, and what their times say.

A visit is one call at a shape. Its ratio is its time over the steady median of its shape: what the
same system takes for the same shape once it is warm. The first visit of a shape is what a user
waits for who sends something that nobody sent before.
"""

import numpy as np

from experiments.studies.output import make_bar

RESAMPLES = 1000


def draw_shapes(count, batches, lengths, control, seed):
    """Returns `count` shapes (batch, length): batches log-uniform, since small ones are common,
    lengths uniform, both ends included. The control's shape does not occur."""
    random = np.random.default_rng(seed)
    shapes = []
    while len(shapes) < count:
        low, high = np.log(batches[0]), np.log(batches[1] + 1)
        batch = min(batches[1], int(np.exp(random.uniform(low, high))))
        shape = (batch, int(random.integers(lengths[0], lengths[1] + 1)))
        if shape != control:
            shapes.append(shape)
    return shapes


def first_visits(shapes):
    """Returns for each visit whether its shape is new."""
    seen, first = set(), []
    for shape in shapes:
        first.append(shape not in seen)
        seen.add(shape)
    return first


def percentiles(values, which=(50, 95, 99)):
    """Returns {"p50": …} and "max" of the values; None if there are none."""
    if not len(values):
        return None
    return {**{f"p{p}": float(np.percentile(values, p)) for p in which},
            "max": float(np.max(values))}


def spread(values):
    """Returns the 99th percentile over the median."""
    return float(np.percentile(values, 99) / np.percentile(values, 50))


def summarise(shapes, times, steady, control):
    """Returns what a run says.

    shapes, times: of each visit, times in µs. steady: {shape: its steady median in µs}. control:
    the times of a fixed shape, taken between blocks of the visits.
    """
    times, control = np.asarray(times, float), np.asarray(control, float)
    expected = np.array([steady[shape] for shape in shapes], float)
    ratios, first = times / expected, np.array(first_visits(shapes), bool)
    extra = (times - expected)[first]
    random = np.random.default_rng(0)

    def interval(values, statistic):
        picks = random.integers(0, len(values), (RESAMPLES, len(values)))
        low, high = np.percentile([statistic(values[pick]) for pick in picks], (2.5, 97.5))
        return [float(low), float(high)]

    result = {
        "visits": len(shapes), "first_visits": int(first.sum()),
        "latency_us": percentiles(times),
        "ratio": percentiles(ratios),
        "first_ratio": percentiles(ratios[first]),
        "first_ratio_p95_interval": interval(ratios[first], lambda v: np.percentile(v, 95)),
        "later_ratio": percentiles(ratios[~first]),
        "first_extra_us": percentiles(extra),
        "control_us": percentiles(control),
        "spread": spread(ratios), "control_spread": spread(control)}
    result["spread_over_control"] = result["spread"] / result["control_spread"]
    return result


def judge(summary, most_first, most_spread):
    """Returns the bars, each with its figure and whether it holds. summary: None of a system that
    reached no shape, which keeps none."""
    return [make_bar("first visits, 95th percentile of the ratio",
                     summary and summary["first_ratio"]["p95"], most=most_first),
            make_bar("p99 / p50 of all visits over that of the fixed shape",
                     summary and summary["spread_over_control"], most=most_spread)]
