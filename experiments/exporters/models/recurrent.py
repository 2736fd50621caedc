"""Recurrent networks: packed lengths, both directions, cells in a loop over time."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from experiments.exporters.catalogue import Entry, Input, always, below, floats, lengths, scripted


class Packed(nn.Module):
    """A layer over packed sequences: steps beyond a row's length are zeros, states are its last."""

    def __init__(self, kind, **options):
        super().__init__()
        self.net = kind(10, 16, batch_first=True, **options)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        output, state = self.net(packed)
        output, _ = pad_packed_sequence(output, batch_first=True)
        return (output, *state) if isinstance(state, tuple) else (output, state)


class WithState(nn.Module):
    """A layer whose first state is an input."""

    def __init__(self):
        super().__init__()
        self.net = nn.LSTM(10, 16, num_layers=2)

    def forward(self, x, h, c):
        output, (h, c) = self.net(x, (h, c))
        return output, h, c


class Projected(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.LSTM(10, 16, proj_size=6, batch_first=True)

    def forward(self, x):
        return self.net(x)[0]


class Tagger(nn.Module):
    """Word embedding, bidirectional LSTM, a score for each tag."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 12)
        self.net = nn.LSTM(12, 16, batch_first=True, bidirectional=True)
        self.score = nn.Linear(32, 7)

    def forward(self, words):
        return torch.log_softmax(self.score(self.net(self.words(words))[0]), dim=-1)


class CellLoop(nn.Module):
    """A gated cell called once per step: a loop where it is scripted."""

    def __init__(self):
        super().__init__()
        self.gates, self.new = nn.Linear(15, 18), nn.Linear(15, 9)

    def forward(self, x):
        h = torch.zeros(x.size(1), 9)
        for i in range(x.size(0)):
            r, z = torch.sigmoid(self.gates(torch.cat([x[i], h], dim=1))).chunk(2, dim=1)
            h = z * h + (1 - z) * torch.tanh(self.new(torch.cat([x[i], r * h], dim=1)))
        return h


class Seq2Seq(nn.Module):
    """GRU encoder, GRU decoder that attends to the encoder's states."""

    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(30, 8), nn.Embedding(30, 8)
        self.encoder = nn.GRU(8, 16, batch_first=True)
        self.decoder = nn.GRU(8, 16, batch_first=True)
        self.out = nn.Linear(32, 30)

    def forward(self, source, target):
        states, last = self.encoder(self.source(source))
        outputs, _ = self.decoder(self.target(target), last)
        weights = torch.softmax(torch.bmm(outputs, states.transpose(1, 2)), dim=-1)
        return self.out(torch.cat([outputs, torch.bmm(weights, states)], dim=-1))


BN = {"b": (1, 6), "n": (1, 24)}
X = floats("b", "n", 10)
LENGTHS = Input("lengths", ("b",), lengths("n"))


def entry(name, make, inputs, sizes, about):
    return Entry(name, "recurrent", make, inputs, sizes, about)


MODELS = [
    entry("lstm-packed", always(lambda: Packed(nn.LSTM)), [X, LENGTHS], BN,
          "LSTM over packed lengths"),
    entry("lstm-packed-bidirectional",
          always(lambda: Packed(nn.LSTM, num_layers=2, bidirectional=True)), [X, LENGTHS], BN,
          "two layers in both directions over packed lengths"),
    entry("gru-packed", always(lambda: Packed(nn.GRU)), [X, LENGTHS], BN, "GRU, packed lengths"),
    entry("gru-packed-bidirectional", always(lambda: Packed(nn.GRU, bidirectional=True)),
          [X, LENGTHS], BN, "both directions over packed lengths"),
    entry("rnn-relu", always(lambda: nn.RNN(10, 16, nonlinearity="relu", batch_first=True)), [X],
          BN, "plain RNN"),
    entry("lstm-state", always(WithState),
          [floats("n", "b", 10), floats(2, "b", 16, name="h"), floats(2, "b", 16, name="c")], BN,
          "two layers from a given state, time first"),
    entry("lstm-projected", always(Projected), [X], BN, "LSTM with a projection"),
    entry("tagger", always(Tagger), [Input("words", ("b", "n"), below(50))], BN,
          "embedding, bidirectional LSTM, tags"),
    entry("cell-loop", scripted(CellLoop), [floats("n", "b", 6)], BN,
          "a cell in a Python loop over time"),
    entry("seq2seq", always(Seq2Seq),
          [Input("source", ("b", "n"), below(30)), Input("target", ("b", "m"), below(30))],
          {**BN, "m": (1, 24)}, "GRU encoder and decoder with attention"),
]
