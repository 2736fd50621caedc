"""PyTorch in f64: the reference of results where errors are told."""

import numpy as np
import torch

from experiments.peers import torch_eager


class Peer(torch_eager.Peer):
    def make_module(self, experiment):
        return super().make_module(experiment).to(torch.float64)

    def bind(self, inputs):
        super().bind({name: array.astype(np.float64) if array.dtype == np.float32 else array
                      for name, array in inputs.items()})

    def settings(self):
        return f"eager, f64, inference_mode, {self.threads} threads"
