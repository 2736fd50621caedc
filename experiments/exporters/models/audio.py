"""Sound and other signals: stacks of one-dimensional convolutions, filters, running sums."""

import torch
from torch import nn
from torch.nn import functional

from experiments.exporters.catalogue import Entry, Input, always, below, floats


class Tacotron(nn.Module):
    """Tacotron 2's encoder: characters, three convolutions with norms, an LSTM both ways."""

    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(30, 16)
        self.stack = nn.Sequential(*(layer for _ in range(3) for layer in (
            nn.Conv1d(16, 16, 5, padding=2), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5))))
        self.net = nn.LSTM(16, 8, batch_first=True, bidirectional=True)

    def forward(self, text):
        return self.net(self.stack(self.letters(text).transpose(1, 2)).transpose(1, 2))[0]


class WaveNet(nn.Module):
    """Causal dilated convolutions with gates and skips."""

    def __init__(self):
        super().__init__()
        self.inward = nn.Conv1d(1, 8, 1)
        self.gates = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=2 ** i) for i in range(4))
        self.outward = nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(4))

    def forward(self, sound):
        x, total = self.inward(sound), 0
        for i, (gate, outward) in enumerate(zip(self.gates, self.outward)):
            a, b = gate(functional.pad(x, (2 ** i, 0))).chunk(2, dim=1)
            y = outward(torch.tanh(a) * torch.sigmoid(b))
            x, total = x + y, total + y
        return functional.mish(total)


class Vocoder(nn.Module):
    """Transposed convolutions up, a weight-normed stack, reflected edges."""

    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose1d(10, 8, 8, stride=4, padding=2)
        self.smooth = nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 1, 7))

    def forward(self, mel):
        x = functional.leaky_relu(self.up(mel), 0.1)
        return torch.tanh(self.smooth(functional.pad(x, (3, 3), mode="reflect")))


class Conformer(nn.Module):
    """The convolution module: gated unit, depthwise convolution, swish, layer norm."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.inward, self.outward = nn.Conv1d(16, 32, 1), nn.Conv1d(16, 16, 1)
        self.depth = nn.Conv1d(16, 16, 7, padding=3, groups=16)
        self.middle = nn.BatchNorm1d(16)

    def forward(self, x):
        y = functional.glu(self.inward(self.norm(x).transpose(1, 2)), dim=1)
        return x + self.outward(functional.silu(self.middle(self.depth(y)))).transpose(1, 2)


class Volume(nn.Module):
    """Three-dimensional convolution and pooling over a clip."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(2, 4, 3, padding=1)

    def forward(self, clip):
        return functional.avg_pool3d(torch.relu(self.conv(clip)), 2).mean((2, 3, 4))


def entry(name, make, inputs, sizes, about):
    return Entry(name, "signals", make, inputs, sizes, about)


BN = {"b": (1, 4), "n": (2, 40)}
MODELS = [
    entry("tacotron", always(Tacotron), [Input("text", ("b", "n"), below(30))], BN,
          "Conv1d stack, LSTM both ways"),
    entry("wavenet", always(WaveNet), [floats("b", 1, "n", name="sound")], BN,
          "causal dilated convolutions"),
    entry("vocoder", always(Vocoder), [floats("b", 10, "n", name="mel")], BN,
          "ConvTranspose1d, reflected edges"),
    entry("conformer", always(Conformer), [floats("b", "n", 16)], BN, "gated depthwise module"),
    entry("clip", always(Volume), [floats("b", 2, "t", "h", "w", name="clip")],
          {"b": (1, 3), "t": (2, 9), "h": (2, 12), "w": (2, 12)}, "three spatial axes"),
]
