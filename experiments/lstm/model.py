"""The one-layer LSTM 300 → 512 for the peers: time first, batch 1, zero initial state."""

import torch

from experiments.lstm import weights


class Lstm(torch.nn.Module):
    """x (n, 1, 300) f32 → y (n, 1, 512) f32, the hidden state after every step."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.LSTM(weights.INPUT, weights.HIDDEN)
        with torch.no_grad():
            for name, value in weights.weights().items():
                getattr(self.net, f"{name}_l0").copy_(torch.from_numpy(value))

    def forward(self, x):
        return self.net(x)[0]


def make_module():
    """Returns the module in inference mode with the weights of weights.py."""
    return Lstm().eval()
