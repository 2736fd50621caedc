"""The Tree-LSTM in MXNet: recursion in Python over two hybridized cells."""

import mxnet as mx

from experiments.tree_lstm import weights

HIDDEN = weights.HIDDEN


class Cell(mx.gluon.HybridBlock):
    """A cell with the gates of `name`; `leaf`: of a word, else of two children."""

    def __init__(self, leaf):
        super().__init__()
        self.leaf = leaf
        values = weights.weights()
        with self.name_scope():
            for name in ("leaf",) if leaf else ("node", "forget"):
                for part in ("weight", "bias"):
                    setattr(self, f"{name}_{part}", self.params.get_constant(
                        f"{name}_{part}", values[f"{part}_{name}"]))

    def hybrid_forward(self, F, x, *states, **p):
        def dense(inputs, name, outputs):
            return F.FullyConnected(inputs, p[f"{name}_weight"], p[f"{name}_bias"],
                                    num_hidden=outputs)

        if self.leaf:
            gates = dense(x, "leaf", 3 * HIDDEN)
        else:
            cl, hr, cr = states
            gates = dense(x + hr, "node", 3 * HIDDEN)
            forget = F.sigmoid(dense(F.concat(x, hr, dim=0), "forget", HIDDEN))
            kept = F.sum(forget * F.concat(cl, cr, dim=0), axis=0, keepdims=True)
        i, o, u = F.split(gates, num_outputs=3, axis=1)
        c = F.sigmoid(i) * F.tanh(u)
        if not self.leaf:
            c = c + kept
        return F.sigmoid(o) * F.tanh(c), c


def make_function():
    """Returns (prepare, run): prepare(tree) → nested pairs of words, run of that → (1, 150)."""
    leaf, node = Cell(True), Cell(False)
    for cell in (leaf, node):
        cell.initialize()
        cell.hybridize(static_alloc=True, static_shape=True)
    table = mx.nd.array(weights.words())

    def prepare(tree):
        return weights.fold(tree, lambda word: table[word:word + 1].copy(),
                            lambda left, right: (left, right))

    def encode(tree):
        if not isinstance(tree, tuple):
            return leaf(tree)
        hl, cl = encode(tree[0])
        hr, cr = encode(tree[1])
        return node(hl, cl, hr, cr)

    return prepare, lambda tree: encode(tree)[0]
