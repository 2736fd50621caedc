"""The Tree-LSTM of tree_lstm.nir for PyTorch: node by node, and batched by level by hand."""

import collections

import torch
import torch.nn.functional as functional

from experiments.tree_lstm import weights

HIDDEN = weights.HIDDEN
Leaf = collections.namedtuple("Leaf", "word")  # (1, 300) f32
Node = collections.namedtuple("Node", "left right")


class TreeLstm(torch.nn.Module):
    """A tree of Leaf and Node → the root's hidden state (1, 150) f32, by recursion."""

    def __init__(self):
        super().__init__()
        for name, value in weights.weights().items():
            self.register_buffer(name, torch.from_numpy(value))

    def prepare(self, tree):
        """Returns what forward takes of a weights.Tree: the words are there, as in a user's
        program that looked them up."""
        table = torch.from_numpy(weights.words().copy())
        return weights.fold(tree, lambda word: Leaf(table[word:word + 1].clone()), Node)

    def forward(self, tree):
        return self.encode(tree)[0]

    def encode(self, tree):
        if isinstance(tree, Leaf):
            i, o, u = functional.linear(tree.word, self.weight_leaf, self.bias_leaf).chunk(3, 1)
            c = torch.sigmoid(i) * torch.tanh(u)
            return torch.sigmoid(o) * torch.tanh(c), c
        hl, cl = self.encode(tree.left)
        hr, cr = self.encode(tree.right)
        i, o, u = functional.linear(hl + hr, self.weight_node, self.bias_node).chunk(3, 1)
        fl, fr = torch.sigmoid(
            functional.linear(torch.cat((hl, hr)), self.weight_forget, self.bias_forget)).split(1)
        c = torch.sigmoid(i) * torch.tanh(u) + fl * cl + fr * cr
        return torch.sigmoid(o) * torch.tanh(c), c


class TreeLstmByLevel(TreeLstm):
    """The same with all nodes of one height in one product, as a patient user would write it.

    Nodes are numbered by height, so that a level's states are written to a slice; only its
    children are gathered. The schedule is made from the tree in every call, for every input has
    another one.
    """

    def prepare(self, tree):
        """The tree as lists, and its words as one matrix (leaves, 300)."""
        return tree.parents.tolist(), torch.from_numpy(weights.words()[tree.words])

    @staticmethod
    def schedule(parents):
        """Returns the sizes of the levels and, for the inner nodes by level, the new numbers of
        the left children of a level, then of its right ones."""
        count = len(parents)
        heights, children = [0] * count, [None] * count
        for node, parent in enumerate(parents[:-1]):  # children come before their parents
            if heights[parent] <= heights[node]:
                heights[parent] = heights[node] + 1
            if children[parent] is None:
                children[parent] = node
            else:
                children[parent] = (children[parent], node)
        levels = [[] for _ in range(heights[-1] + 1)]
        for node, height in enumerate(heights):
            levels[height].append(node)
        numbers, number = [0] * count, 0
        for level in levels:
            for node in level:
                numbers[node] = number
                number += 1
        below = []
        for level in levels[1:]:
            below += [numbers[children[node][0]] for node in level]
            below += [numbers[children[node][1]] for node in level]
        return [len(level) for level in levels], below

    def forward(self, tree):
        parents, words = tree
        sizes, below = self.schedule(parents)
        below = torch.tensor(below)
        h = words.new_empty((len(parents), HIDDEN))
        c = words.new_empty((len(parents), HIDDEN))
        i, o, u = functional.linear(words, self.weight_leaf, self.bias_leaf).chunk(3, 1)
        begin, end, taken = 0, sizes[0], 0
        torch.mul(torch.sigmoid(i), torch.tanh(u), out=c[:end])
        torch.mul(torch.sigmoid(o), torch.tanh(c[:end]), out=h[:end])
        for size in sizes[1:]:
            begin, end = end, end + size
            rows = below[taken:taken + 2 * size]
            taken += 2 * size
            hs, cs = h[rows], c[rows]
            i, o, u = functional.linear(
                hs[:size] + hs[size:], self.weight_node, self.bias_node).chunk(3, 1)
            kept = torch.sigmoid(
                functional.linear(hs, self.weight_forget, self.bias_forget)).mul_(cs)
            level = torch.sigmoid(i).mul_(torch.tanh(u)).add_(kept[:size]).add_(kept[size:])
            c[begin:end] = level
            torch.mul(torch.sigmoid(o), torch.tanh(level), out=h[begin:end])
        return h[-1:]


def make_module(by_level=False):
    """Returns a module in inference mode."""
    return (TreeLstmByLevel if by_level else TreeLstm)().eval()
