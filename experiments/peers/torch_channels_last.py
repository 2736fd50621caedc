"""PyTorch with torch.compile and images with their channels last: compiled for one size, and once
with dynamic=True for all others."""

import torch

from experiments.peers import torch_eager


class Peer(torch_eager.Peer):
    """Freezing folds normalisation into convolutions and packs their weights; without it they are
    packed in each call."""

    def __init__(self, experiment, threads, options):
        self.own_size = tuple(options["own_size"])  # (height, width)
        super().__init__(experiment, threads, options)

    def prepare(self, module):
        torch._inductor.config.freezing = True
        module = module.to(memory_format=torch.channels_last)
        self.sized = torch.compile(module, dynamic=False)
        return torch.compile(module, dynamic=True)

    def settings(self):
        return (f"torch.compile, compiled for {' × '.join(map(str, self.own_size))} and with "
                "dynamic=True for other sizes, channels last, inductor with freezing, "
                f"inference_mode, {self.threads} threads")

    def bind(self, inputs):
        self.inputs = {name: torch.from_numpy(array).contiguous(memory_format=torch.channels_last)
                       for name, array in inputs.items()}
        size, = {array.shape[2:] for array in inputs.values()}
        self.chosen = self.sized if size == self.own_size else self.call

    def run(self):
        with torch.inference_mode():
            self.result = self.chosen(**self.inputs)
