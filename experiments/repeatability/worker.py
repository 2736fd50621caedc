"""A system that can be made slower by a known share: what a planted difference is measured with.

Behind each run, inside the time that is taken, the thread that called spins for that share of what
a run took when it was calibrated. So the difference is exact, whatever the model and its length,
and has the noise of the runs themselves; repeating a part of the work would be off by what of a run
is not repeated.
"""

import statistics
import time

from experiments.harness import worker

CALIBRATION = 15  # runs


class Server(worker.Server):
    def __init__(self, options):
        super().__init__(options)
        self.share, self.spin_ns, self.calibrated = 0.0, 0, None

    def plant(self, share):
        """Runs take so much longer from now on: 0.03 is 3 %; 0 is as they are."""
        self.share, self.calibrated = share, None

    def burst(self, length, warm, runs):
        if self.share and self.calibrated != length:
            times = super().burst(length, worker_warm(warm), CALIBRATION)
            self.spin_ns, self.calibrated = int(self.share * statistics.median(times)), length
        if not self.share:
            return super().burst(length, warm, runs)
        self.bind(length)
        run, clock, spin = self.peer.run, time.perf_counter_ns, self.spin_ns

        def slowed():
            run()
            end = clock() + spin
            while clock() < end:
                pass
        self.peer.run, original = slowed, run
        try:
            return super().burst(length, warm, runs)
        finally:
            self.peer.run = original


def worker_warm(warm):
    """A calibration is warm even where the burst need not be."""
    return max(3, warm)
