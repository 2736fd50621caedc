"""What tests of runs put in the place of systems in processes of their own."""

from experiments.harness import pool
from experiments.harness.errors import ExperimentError


class FakePool(pool.Pool):
    """Starts what it is given: {system: what answers like pool.Worker, or why it does not start}.
    `started` has what it was told of each."""

    def __init__(self, made):
        super().__init__()
        self.made, self.started = made, {}

    def start(self, system, *arguments):
        worker = self.made[system]
        if isinstance(worker, str):
            raise ExperimentError(f"{system}: {worker}; see /a/log", system=system)
        self.workers[system] = worker
        self.started[system] = arguments
