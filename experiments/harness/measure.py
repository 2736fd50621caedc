"""One length of one case: check every system's result, then time all of them, interleaved."""

import statistics

import numpy as np

from experiments.harness.errors import WRONG_RESULT, ExperimentError

# A burst warms up for WARM_US or WARM_RUNS, whichever is longer: stopped pools must wake and the
# caches refill. Then it times as many runs as fit into its budget, within these bounds.
WARM_US, WARM_RUNS, MOST_WARM_RUNS = 8_000, 3, 30
FEWEST_RUNS, MOST_RUNS = 3, 60


def check(workers, reference, tolerance, length):
    """Runs every system once and compares its result with the reference's.

    Returns {system: largest absolute difference}; raises (exit code 3) on any above `tolerance`,
    on a wrong shape and on NaN.
    """
    expected = workers[reference].ask("check", length)
    differences = {}
    for system, worker in workers.items():
        found = worker.ask("check", length)
        if found.shape != expected.shape:
            raise ExperimentError(
                f"{system} at length {length}: shape {found.shape}, {reference} has "
                f"{expected.shape}; nothing was timed there", WRONG_RESULT)
        difference = float(np.max(np.abs(found - expected)))
        if not difference <= tolerance:  # NaN fails too
            raise ExperimentError(
                f"{system} at length {length}: differs from {reference} by {difference:.2g}, "
                f"allowed are {tolerance:g}; nothing was timed there", WRONG_RESULT)
        differences[system] = difference
        worker.confine()
    return differences


def time_rounds(workers, length, rounds, burst_us, long_runs=False):
    """Returns {system: [median µs of each round's burst]}; with `long_runs` a burst is one run
    behind one that warms up.

    Every round visits every system once; the order rotates, so that no system always follows the
    same other one. All bursts of a length have the same number of runs.
    """
    estimates = {}
    fewest, warm_runs = (1, 1) if long_runs else (FEWEST_RUNS, WARM_RUNS)
    for system, worker in workers.items():
        if long_runs:
            estimates[system] = max(1.0, worker.ask("burst", length, 0, 1)[0] / 1e3)
            continue
        estimates[system] = max(1.0, min(worker.ask("burst", length, 2, 3)) / 1e3)
    typical = statistics.median(estimates.values())
    runs = int(min(MOST_RUNS, max(fewest, burst_us / typical)))
    names = list(workers)
    times = {system: [] for system in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for system in names[shift:] + names[:shift]:
            warm = int(min(MOST_WARM_RUNS, max(warm_runs, WARM_US / estimates[system])))
            burst = workers[system].ask("burst", length, warm, runs)
            times[system].append(statistics.median(burst) / 1e3)
    return times
