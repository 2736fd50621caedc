"""Code that moves elements about: running sums, gathers, scatters, sorting, data-sized results."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from experiments.exporters.catalogue import Entry, Input, always, below, bools, floats, normal


class Cumulative(nn.Module):
    """Running sums, along both axes and backwards; positions of tokens that are no padding."""

    def forward(self, x, ids):
        kept = (ids != 0).long()
        backwards = x.flip(1).cumsum(1).flip(1)
        return x.cumsum(1), backwards, kept.cumsum(1) * kept, x.softmax(1).cumsum(-1) < 0.9


class Gathers(nn.Module):
    """The forms of reading by index."""

    def forward(self, x, rows, columns):
        last = x.gather(1, (columns[:, :1] % x.size(1)).unsqueeze(-1).expand(-1, -1, x.size(2)))
        return (x[rows], x[:, -1], x.index_select(2, torch.tensor([3, 0, 3])), last,
                x[torch.arange(x.size(0)), columns[:, 0]], x.flatten(0, 1)[columns])


class Scatters(nn.Module):
    """The forms of writing by index."""

    def forward(self, x, rows, updates):
        a = x.clone()
        a[:, 0] = 1.5
        a[rows] = updates
        return (a, x.index_add(0, rows, updates),
                x.scatter(0, rows[:, None].expand(-1, x.size(1)), updates),
                x.scatter_add(1, rows[None, :].expand(x.size(0), -1) % x.size(1),
                              x[:, :1].expand(-1, rows.size(0))))


class MaskedWrite(nn.Module):
    """index_put with a mask, masked_fill, where over broadcast shapes."""

    def forward(self, x, mask):
        a = x.clone()
        a[mask] = 0.0
        b = x.masked_fill(mask, -1.0)
        return a, b, torch.where(mask, x, x.mean(0, keepdim=True))


class Sorting(nn.Module):
    """topk, sort, argsort, argmax, median by sorting; no equal elements."""

    def forward(self, x):
        values, places = x.topk(3, dim=1)
        ordered, order = x.sort(dim=1, descending=True)
        return values, places, ordered, order, x.argmax(1), x.argsort(0)[0], x.min(1).values


class Selected(nn.Module):
    """As many elements as a mask says: nonzero, masked_select, boolean index."""

    def forward(self, x, mask):
        return torch.nonzero(mask), x[mask] * 2, x[mask].sum()


class MaskedSelect(nn.Module):
    def forward(self, x, mask):
        return torch.masked_select(x, mask)


class Distinct(nn.Module):
    """unique, and counts by it."""

    def forward(self, ids):
        values, inverse, counts = torch.unique(ids, sorted=True, return_inverse=True,
                                               return_counts=True)
        return values, inverse, counts


class Repeats(nn.Module):
    """repeat, repeat_interleave, roll, flip, stack, tril, by sizes of the input."""

    def forward(self, x):
        b, n = x.shape
        return (x.repeat(2, 3), x.repeat_interleave(3, dim=1), torch.roll(x, 2, 1), x.flip(0),
                torch.stack([x, x + 1], dim=1).view(2 * b, n), x.tril(-1),
                x.new_zeros(n, b) + torch.arange(b))


class Durations(nn.Module):
    """FastSpeech's length regulator: each phoneme as often as its duration says."""

    def forward(self, x, durations):
        return torch.repeat_interleave(x, durations, dim=0)


class Einsums(nn.Module):
    def forward(self, a, b):
        return (torch.einsum("bij,bjk->bik", a, b), torch.einsum("bij,bjk->bk", a, b),
                torch.einsum("bij->jb", a), torch.tensordot(a, b.mean(0), dims=([2], [0])),
                torch.einsum("bij,bij->b", a, a))


class OneHots(nn.Module):
    """one_hot, bucketize, embedding_bag, cross entropy of given classes."""

    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 6, mode="mean")

    def forward(self, ids, x):
        return (functional.one_hot(ids, 20), self.bag(ids),
                functional.one_hot(ids, 20).float().mean(1), x.clamp(-1, 1).round().long())


class Ragged(nn.Module):
    """Segments by their lengths: mask from arange, sums by segment, last valid step."""

    def forward(self, x, sizes):
        n = x.size(1)
        inside = torch.arange(n)[None, :] < sizes[:, None]
        total = (x * inside.unsqueeze(-1)).sum(1)
        highest = x.masked_fill(~inside.unsqueeze(-1), float("-inf")).amax(1)
        last = x[torch.arange(x.size(0)), sizes - 1]
        return total / sizes[:, None], highest, last


class Sequences(nn.Module):
    """split, chunk, unbind and cat: lists of tensors in between."""

    def forward(self, x):
        parts = torch.split(x, 3, dim=1)
        halves = x.chunk(2, dim=2)
        return torch.cat(parts[::-1], dim=1), halves[0] - halves[1], torch.stack(x.unbind(2)).sum(0)


class Graph(nn.Module):
    """A graph convolution: messages along edges, summed at their ends."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, nodes, edges):
        source, target = edges[0], edges[1]
        message = torch.relu(self.linear(nodes))[source]
        total = torch.zeros_like(nodes).index_add(0, target, message)
        count = torch.zeros(nodes.size(0)).index_add(0, target, torch.ones(target.size(0)))
        return total / count.clamp(min=1)[:, None]


class ScatteredGraph(Graph):
    """The same by scatter_add, which TorchScript's exporter adds up right."""

    def forward(self, nodes, edges):
        source, target = edges[0], edges[1]
        message = torch.relu(self.linear(nodes))[source]
        place = target[:, None].expand(-1, 8)
        return torch.zeros_like(nodes).scatter_add(0, place, message)


def entry(name, make, inputs, sizes, about):
    return Entry(name, "indexing", make, inputs, sizes, about)


def distinct_rows(generator, shape, sizes):
    """Row numbers without repetition, so that no two writes meet."""
    return generator.permutation(sizes["n"])[:shape[0]].astype(np.int64)


def row_lengths(generator, shape, sizes):
    return generator.integers(1, sizes["n"] + 1, size=shape)


BN = {"b": (1, 6), "n": (1, 24)}
MODELS = [
    entry("cumulative", always(Cumulative), [floats("b", "n"), Input("ids", ("b", "n"), below(3))],
          BN, "cumsum, backwards, top-p"),
    entry("gathers", always(Gathers),
          [floats("b", "n", 5), Input("rows", ("k",), below("b")),
           Input("columns", ("b", 2), below("n"))], {**BN, "k": (1, 9)}, "reading by index"),
    entry("scatters", always(Scatters),
          [floats("n", 5), Input("rows", ("k",), distinct_rows),
           Input("updates", ("k", 5), normal)], {"n": (9, 24), "k": (1, 8)}, "writing by index"),
    entry("masked-write", always(MaskedWrite),
          [floats("b", "n"), Input("mask", ("b", "n"), bools(0.4))], BN, "index_put with a mask"),
    entry("sorting", always(Sorting), [floats("b", "n")], {**BN, "n": (3, 24)},
          "topk, sort, argsort"),
    entry("selected", always(Selected), [floats("b", "n"), Input("mask", ("b", "n"), bools(0.4))],
          BN, "nonzero, boolean index"),
    entry("masked-select", always(MaskedSelect),
          [floats("b", "n"), Input("mask", ("b", "n"), bools(0.4))], BN, "torch.masked_select"),
    entry("distinct", always(Distinct), [Input("ids", ("n",), below(9))], {"n": (1, 40)}, "unique"),
    entry("repeats", always(Repeats), [floats("b", "n")], {"b": (2, 6), "n": (3, 24)},
          "repeat, roll, flip, tril"),
    entry("durations", always(Durations),
          [floats("n", 6), Input("durations", ("n",), below(5))], {"n": (2, 20)},
          "repeat_interleave by a tensor"),
    entry("einsums", always(Einsums),
          [floats("b", "i", "j", name="a"), floats("b", "j", "k", name="b")],
          {"b": (1, 4), "i": (1, 9), "j": (1, 9), "k": (1, 9)}, "einsum, tensordot"),
    entry("one-hots", always(OneHots), [Input("ids", ("b", "n"), below(20)), floats("b", "n")], BN,
          "one_hot, embedding_bag"),
    entry("ragged", always(Ragged), [floats("b", "n", 4), Input("sizes", ("b",), row_lengths)], BN,
          "masks and sums by length"),
    entry("sequences", always(Sequences), [floats("b", 10, 6)], {"b": (1, 9)},
          "split, cat, unbind"),
    entry("graph", always(Graph),
          [floats("n", 8, name="nodes"), Input("edges", (2, "e"), below("n"))],
          {"n": (1, 20), "e": (1, 40)}, "index_add along edges"),
    entry("graph-scatter", always(ScatteredGraph),
          [floats("n", 8, name="nodes"), Input("edges", (2, "e"), below("n"))],
          {"n": (1, 20), "e": (1, 40)}, "scatter_add along edges"),
]
