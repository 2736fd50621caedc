"""One length of one case: check every system's result, then time all of them, interleaved."""

import statistics

import numpy as np

from experiments.harness.errors import WRONG_RESULT, ExperimentError

# A burst warms up for WARM_US or WARM_RUNS, whichever is longer: stopped pools must wake and the
# caches refill. Then it times as many runs as fit into its budget, within these bounds.
WARM_US, WARM_RUNS, MOST_WARM_RUNS = 8_000, 3, 30
FEWEST_RUNS, MOST_RUNS = 3, 60
SLOW_US = 300_000  # a system whose run takes this long is timed once a burst, behind one warm run
ENDLESS_US = 2_000_000  # this long: behind none; waking a pool is less than a thousandth of it


def run_once(workers, reference, length):
    """Runs every system once; returns ({system: output}, {system: ExperimentError}). The
    reference's own failure is raised."""
    outputs, errors = {}, {}
    for system, worker in workers.items():
        try:
            outputs[system] = worker.ask("check", length)
            worker.confine()
        except ExperimentError as error:
            if system == reference:
                raise
            errors[system] = error
    return outputs, errors


def examine(workers, reference, tolerance, length):
    """Runs every system once and compares its result with the reference's.

    Returns ({system: largest absolute difference}, {system: ExperimentError}); the latter of each
    whose result is further away than `tolerance`, has another shape, holds NaN or never came. The
    reference's own failure is raised.
    """
    return compare(*run_once(workers, reference, length), reference, tolerance, length)


def compare(outputs, errors, reference, tolerance, length):
    """Returns what `examine` does of what systems computed; `errors` are those of others, and come
    with it."""
    differences = {}
    for system, found in outputs.items():
        try:
            differences[system] = difference(system, found, reference, outputs[reference],
                                             tolerance, length)
        except ExperimentError as error:
            if system == reference:
                raise
            errors[system] = error
    return differences, errors


def difference(system, found, reference, expected, tolerance, length):
    """Returns the largest absolute difference, or raises with exit code 3."""
    if found.shape != expected.shape:
        raise ExperimentError(
            f"{system} at length {length}: shape {found.shape}, {reference} has "
            f"{expected.shape}; nothing was timed there", WRONG_RESULT, system)
    largest = float(np.max(np.abs(found - expected)))
    if not largest <= tolerance:  # NaN fails too
        raise ExperimentError(
            f"{system} at length {length}: differs from {reference} by {largest:.2g}, "
            f"allowed are {tolerance:g}; nothing was timed there", WRONG_RESULT, system)
    return largest


def check(workers, reference, tolerance, length):
    """Returns {system: largest absolute difference} as `examine`, but raises the first error
    (exit code 3 where the result is wrong)."""
    differences, errors = examine(workers, reference, tolerance, length)
    for error in errors.values():
        raise error
    return differences


def time_rounds(workers, length, rounds, burst_us, long_runs=False):
    """Returns {system: [median µs of each round's burst]}; with `long_runs` a burst is one run
    behind one that warms up.

    Every round visits every system once; the order rotates, so that no system always follows the
    same other one. All bursts of a length have the same number of runs, but for slow systems.
    """
    estimates = {}
    fewest, warm_runs = (1, 1) if long_runs else (FEWEST_RUNS, WARM_RUNS)
    for system, worker in workers.items():
        if long_runs:
            estimates[system] = max(1.0, worker.ask("burst", length, 0, 1)[0] / 1e3)
            continue
        # The check was the first run; the second tells a slow system, which then has no third.
        first = max(1.0, worker.ask("burst", length, 0, 1)[0] / 1e3)
        estimates[system] = first if first >= SLOW_US else max(
            1.0, min(worker.ask("burst", length, 1, 3)) / 1e3)
    typical = statistics.median(estimates.values())
    runs = int(min(MOST_RUNS, max(fewest, burst_us / typical)))
    names = list(workers)
    times = {system: [] for system in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for system in names[shift:] + names[:shift]:
            warm = int(min(MOST_WARM_RUNS, max(warm_runs, WARM_US / estimates[system])))
            if estimates[system] >= SLOW_US:
                warm, timed = int(estimates[system] < ENDLESS_US), 1
            else:
                timed = runs
            burst = workers[system].ask("burst", length, warm, timed)
            times[system].append(statistics.median(burst) / 1e3)
    return times
