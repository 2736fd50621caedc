"""Branches and loops: scripted for one exporter, torch.cond and while_loop for the other."""

import numpy as np
import torch
from torch import Tensor, nn

from experiments.exporters.catalogue import TORCHSCRIPT, Entry, Input, below, floats, scripted


def either(script, export):
    """One module for each exporter, with equal weights."""
    return lambda exporter: (torch.jit.script(script().eval()) if exporter == TORCHSCRIPT
                             else export())


class IfScript(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        if bool(x.sum() > 0):
            y = torch.relu(self.wide(x))
        else:
            y = torch.tanh(self.narrow(x)) - 1
        return y


class IfCond(IfScript):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: torch.relu(self.wide(x)),
                          lambda x: torch.tanh(self.narrow(x)) - 1, (x,))


class WhileScript(nn.Module):
    """Halves until small: as many steps as the values say."""

    def forward(self, x):
        steps = torch.zeros((), dtype=torch.int64)
        while bool(x.abs().max() > 0.1):
            x = x * 0.5
            steps = steps + 1
        return x, steps


class WhileLoop(nn.Module):
    def forward(self, x):
        def go_on(x, steps):
            return x.abs().max() > 0.1

        def step(x, steps):
            return x * 0.5, steps + 1

        return torch.ops.higher_order.while_loop(
            go_on, step, (x, torch.zeros((), dtype=torch.int64)), ())


class Greedy(nn.Module):
    """Greedy decoding, scripted: a list of tokens grows until the end comes."""

    def __init__(self):
        super().__init__()
        self.words, self.cell = nn.Embedding(12, 8), nn.Linear(16, 8)
        self.out = nn.Linear(8, 12)

    def forward(self, h: Tensor, limit: Tensor):
        token = torch.zeros(h.size(0), dtype=torch.int64)
        tokens = torch.zeros(h.size(0), 0, dtype=torch.int64)
        for i in range(int(limit)):
            h = torch.tanh(self.cell(torch.cat([self.words(token), h], dim=1)))
            token = self.out(h).argmax(1)
            tokens = torch.cat([tokens, token.unsqueeze(1)], dim=1)
        return tokens, h


class Growing(nn.Module):
    """A list that a loop appends to, stacked afterwards: sequences in ONNX."""

    def forward(self, x):
        parts = []
        total = torch.zeros_like(x[0])
        for i in range(x.size(0)):
            total = total * 0.9 + x[i]
            parts.append(total)
        return torch.stack(parts)


class Segments(nn.Module):
    """Splits by run-time sizes, works on each part, joins: sequences in ONNX."""

    def forward(self, x):
        parts = torch.split(x, 4)
        out = torch.jit.annotate(list[Tensor], [])
        for part in parts:
            out.append(part.cumsum(0) - part.mean(0))
        return torch.cat(out)


class Collatz(nn.Module):
    """A loop with a branch inside."""

    def forward(self, n: Tensor):
        steps = torch.zeros((), dtype=torch.int64)
        while bool(n > 1):
            if bool(n % 2 == 0):
                n = n // 2
            else:
                n = 3 * n + 1
            steps = steps + 1
        return steps


class CollatzLoop(nn.Module):
    def forward(self, n):
        def step(n, steps):
            return torch.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, (n,)), steps + 1

        return torch.ops.higher_order.while_loop(
            lambda n, steps: n > 1, step, (n, torch.zeros((), dtype=torch.int64)), ())[1]


class ByRank(nn.Module):
    """A branch on an extent, and one on another branch's result."""

    def forward(self, x):
        if x.size(0) > 4:
            y = x[:4].sum(0)
        else:
            y = x.mean(0)
        if bool(y.max() > 1):
            y = y / y.max()
        return y


class ByRankCond(nn.Module):
    """Its second branch: torch.export takes no branch on an extent for one of the run."""

    def forward(self, x):
        y = x.mean(0)
        return torch.cond(y.max() > 1, lambda y: y / y.max(), lambda y: y.clone(), (y,))


class Attend(nn.Module):
    """Adaptive computation: layers until the halting scores suffice."""

    def __init__(self):
        super().__init__()
        self.layer, self.halt = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x):
        left = torch.ones(x.size(0), 1)
        out = torch.zeros_like(x)
        i = 0
        while i < 6 and bool(left.max() > 0.05):
            x = torch.tanh(self.layer(x)) + x
            p = torch.sigmoid(self.halt(x)) * left
            out = out + p * x
            left = left - p
            i += 1
        return out, left


class AttendLoop(Attend):
    def forward(self, x):
        def go_on(i, x, left, out):
            return torch.logical_and(i < 6, left.max() > 0.05)

        def step(i, x, left, out):
            x = torch.tanh(self.layer(x)) + x
            p = torch.sigmoid(self.halt(x)) * left
            return i + 1, x, left - p, out + p * x

        start = (torch.zeros((), dtype=torch.int64), x, torch.ones(x.size(0), 1),
                 torch.zeros_like(x))
        _, _, left, out = torch.ops.higher_order.while_loop(go_on, step, start, ())
        return out, left


class GrowingScan(nn.Module):
    """The running total by torch's own scan."""

    def forward(self, x):
        from torch._higher_order_ops.scan import scan

        def step(total, row):
            total = total * 0.9 + row
            return total, total.clone()

        return scan(step, torch.zeros_like(x[0]), x)[1]


def entry(name, make, inputs, sizes, about):
    return Entry(name, "control", make, inputs, sizes, about)


def small(generator, shape, sizes):
    return np.asarray(generator.integers(1, 8, size=shape), np.int64)


BN = {"n": (1, 24)}
MODELS = [
    entry("if", either(IfScript, IfCond), [floats("n", 8)], BN, "a branch on values"),
    entry("while", either(WhileScript, WhileLoop), [floats("n", 8)], BN, "a loop on values"),
    entry("greedy", scripted(Greedy), [floats("b", 8, name="h"), Input("limit", (), small)],
          {"b": (1, 5)}, "greedy decoding, tokens grow"),
    entry("growing-list", either(Growing, GrowingScan), [floats("n", 5)], BN,
          "append in a loop, stack"),
    entry("segments", scripted(Segments), [floats("n", 5)], BN, "split, work on each, join"),
    entry("collatz", either(Collatz, CollatzLoop), [Input("n", (), below(100))], {},
          "a branch in a loop"),
    entry("by-extent", either(ByRank, ByRankCond), [floats("n", 6)], BN, "a branch on an extent"),
    entry("adaptive", either(Attend, AttendLoop), [floats("n", 8)], BN,
          "layers until scores suffice"),
]
