"""PyTorch with torch.compile(dynamic=True): one compilation for all lengths."""

import torch

from experiments.peers import torch_eager


class Peer(torch_eager.Peer):
    """Freezing, the C++ wrapper and max-autotune were tried and were no faster on these models."""

    def prepare(self, module):
        return torch.compile(module, dynamic=True)

    def settings(self):
        return f"torch.compile(dynamic=True), inductor, inference_mode, {self.threads} threads"
