"""nimble, through its C interface."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import nimble_ctypes  # noqa: E402  (found through the line above)

WARM = 2  # runs before a profile


class Peer:
    """See experiments/harness/worker.py for when which method is called."""

    def __init__(self, experiment, threads, options):
        self.session = nimble_ctypes.Session(
            nimble_ctypes.Model(options["nimble_file"]), threads, pin=True)

    def version(self):
        return nimble_ctypes.version()

    def settings(self):
        return f"{self.session.threads} threads, pinned"

    def bind(self, inputs):
        self.call = self.session.bind(inputs)

    def run(self):
        self.call.run()

    def output(self, name):
        return self.call.outputs()[name].copy()

    def profile(self, runs):
        """Returns the profile of so many runs on what is bound."""
        for _ in range(WARM):
            self.call.run()
        self.session.set_profiling(True)
        for _ in range(runs):
            self.call.run()
        found = self.session.profile()
        self.session.set_profiling(False)
        return found
