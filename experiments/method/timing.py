"""Times executables of one thread against each other in this process, interleaved.

A session of one thread has no pool that could spin at another's expense, so none needs a process of
its own as in harness/pool.py.
"""

import pathlib
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))


class Local:
    """What harness/measure.py asks of a worker."""

    def __init__(self, file):
        import nimble_ctypes
        self.session = nimble_ctypes.Session(nimble_ctypes.Model(str(file)), 1, pin=True)

    def bind(self, x):
        self.call = self.session.bind({"x": x})

    def result(self):
        self.call.run()
        return next(iter(self.call.outputs().values())).copy()

    def ask(self, method, length, warm, runs):
        run, clock = self.call.run, time.perf_counter_ns
        for _ in range(warm):
            run()
        times = []
        for _ in range(runs):
            start = clock()
            run()
            times.append(clock() - start)
        return times


def relative(files, shape, rounds, burst_us, seed=1):
    """files: {name: executable}, "static" among them. Returns {name: {"us", "speed"}} on x of this
    shape: speed is the static executable's time over this one's, the median of the rounds' ratios.
    Raises if a result is not what the static one's is."""
    from experiments.harness import measure
    from experiments.harness.errors import WRONG_RESULT, ExperimentError
    x = np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
    workers = {name: Local(file) for name, file in files.items()}
    for worker in workers.values():
        worker.bind(x)
    expected = workers["static"].result()
    for name, worker in workers.items():
        found = worker.result()
        if found.shape != expected.shape or not np.max(np.abs(found - expected)) <= 1e-4:
            raise ExperimentError(f"method: {name} at {shape} computes something else than the "
                                  "static build; nothing was timed there", WRONG_RESULT)
    times = measure.time_rounds(workers, shape[0], rounds, burst_us)
    static = np.asarray(times["static"])
    return {name: {"us": float(np.median(us)),
                   "speed": float(np.median(static / np.asarray(us)))}
            for name, us in times.items()}
