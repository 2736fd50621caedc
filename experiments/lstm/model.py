"""The LSTM for the peers that read PyTorch: time first, batch 1, zero initial state."""

import torch

from experiments.lstm import weights

NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class Lstm(torch.nn.Module):
    """x (n, 1, 300) f32 → y (n, 1, 512) f32, the hidden state after every step."""

    def __init__(self, layers=1):
        super().__init__()
        self.net = torch.nn.LSTM(weights.INPUT, weights.HIDDEN, layers)
        with torch.no_grad():
            for layer, values in enumerate(weights.by_layer(layers)):
                for name, value in zip(NAMES, values):
                    getattr(self.net, f"{name}_l{layer}").copy_(torch.from_numpy(value))

    def forward(self, x):
        return self.net(x)[0]


class LstmLoop(torch.nn.Module):
    """The same as a loop over the steps that a user writes, layer after layer."""

    def __init__(self, layers=1):
        super().__init__()
        self.cells = torch.nn.ModuleList()
        with torch.no_grad():
            for values in weights.by_layer(layers):
                cell = torch.nn.LSTMCell(values[0].shape[1], weights.HIDDEN)
                for name, value in zip(NAMES, values):
                    getattr(cell, name).copy_(torch.from_numpy(value))
                self.cells.append(cell)

    def compile_inside(self, compiler):
        """Compiles the step: of a loop over a dynamic length, torch.compile would unroll each
        length anew."""
        self.cells = torch.nn.ModuleList(compiler(cell) for cell in self.cells)

    def forward(self, x):
        for cell in self.cells:
            state = (x.new_zeros(1, weights.HIDDEN), x.new_zeros(1, weights.HIDDEN))
            rows = []
            for row in x:
                state = cell(row, state)
                rows.append(state[0])
            x = torch.stack(rows)
        return x


def make_module(layers=1, loop=False):
    """Returns the module in inference mode with the weights of weights.py."""
    return (LstmLoop if loop else Lstm)(layers).eval()
