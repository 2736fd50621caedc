"""One system that meets shapes in a row: the server of harness/worker.py for this study.

What is timed begins with arrays and ends with the result: laying out the arguments is part of it,
since it is new work for every new input.
"""

import gc
import time

from experiments.churn import model
from experiments.harness import worker


def status(key):
    """Returns a figure of /proc/self/status in bytes."""
    with open("/proc/self/status", encoding="ascii") as lines:
        for line in lines:
            if line.startswith(key + ":"):
                return 1024 * int(line.split()[1])
    raise KeyError(key)


class Server(worker.Server):
    """Shapes are (batch, length)."""

    def once(self, inputs):
        start = time.perf_counter_ns()
        self.peer.bind(inputs)
        self.peer.run()
        return (time.perf_counter_ns() - start) / 1e3

    def visit(self, shapes, seconds):
        """Returns µs of one call at each shape, of those that are reached within the time."""
        everything = [model.inputs(shape) for shape in shapes]
        deadline, times = time.monotonic() + seconds, []
        gc.collect()
        gc.disable()
        try:
            for inputs in everything:
                if time.monotonic() > deadline:
                    break
                times.append(self.once(inputs))
        finally:
            gc.enable()
        return times

    def steady(self, shapes, warm, runs, seconds):
        """Returns for each shape µs of `runs` calls in a row behind `warm` that are not timed; of
        those shapes that are reached within the time."""
        deadline, times = time.monotonic() + seconds, []
        for shape in shapes:
            if time.monotonic() > deadline:
                break
            inputs = model.inputs(shape)
            gc.disable()
            try:
                for _ in range(warm):
                    self.once(inputs)
                times.append([self.once(inputs) for _ in range(runs)])
            finally:
                gc.enable()
        return times

    def result(self, shape):
        self.once(model.inputs(shape))
        return self.peer.output(self.experiment.output)

    def memory(self, forget_peak=False):
        """Returns {"held", "peak"} in bytes resident; the peak since the last call that forgot."""
        found = {"held": status("VmRSS"), "peak": status("VmHWM")}
        if forget_peak:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
                file.write("5")
        return found
