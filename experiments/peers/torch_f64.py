"""PyTorch in f64: the reference of results where errors are told."""

import torch

from experiments.peers import torch_eager


class Peer(torch_eager.Peer):
    def make_module(self, experiment):
        return super().make_module(experiment).to(torch.float64)

    def settings(self):
        return f"eager, f64, inference_mode, {self.threads} threads"
