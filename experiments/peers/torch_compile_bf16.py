"""PyTorch with torch.compile(dynamic=True) under autocast to bf16."""

import torch

from experiments.peers import torch_bf16, trial

VARIANTS = {"without freezing": None, "with freezing": {"freezing": True}}

class Peer(torch_bf16.Peer):
    """Freezing packs the weights once instead of in each run. Whether that is faster depends on
    the machine and the version: both are tried, the faster one counts."""

    MODE = ""

    def __init__(self, experiment, threads, options):
        self.experiment = experiment
        super().__init__(experiment, threads, options)

    def prepare(self, module):
        self.bind(self.experiment.inputs(trial.LENGTH))
        calls, self.seconds, self.failed = {}, {}, {}
        for name, settings in VARIANTS.items():
            own = self.make_module(self.experiment) if calls else module
            self.call = torch.compile(own, dynamic=True, options=settings)
            try:
                self.seconds[name] = trial.least_seconds(self.run)
                calls[name] = self.call
            except Exception as error:  # one that cannot be compiled leaves the other
                if name == list(VARIANTS)[-1] and not calls:
                    raise
                self.failed[name] = type(error).__name__
        self.chosen = min(calls, key=self.seconds.get)
        return calls[self.chosen]

    def settings(self):
        tried = [f"{seconds * 1e3:.1f} ms {name}" for name, seconds in self.seconds.items()]
        tried += [f"{error} {name}" for name, error in self.failed.items()]
        return (f"torch.compile(dynamic=True), inductor, {self.chosen} (of {trial.LENGTH} tokens "
                f"{', '.join(tried)}); {super().settings()}")
