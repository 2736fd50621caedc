"""The Tree-LSTM in TensorFlow: a tf.while_loop over the nodes in post-order.

TensorFlow has no recursive data. A tree is two vectors: of each node the number of its word, or -1,
and its children by number; states of finished nodes lie in arrays.
"""

import numpy as np
import tensorflow as tf

from experiments.tree_lstm import weights

HIDDEN = weights.HIDDEN


def prepare(tree):
    """Returns (words (leaves, 300) f32, nodes (count, 3) i32: row in `words` or -1, left child,
    right child)."""
    count = len(tree.parents)
    nodes = np.full((count, 3), -1, np.int32)
    for node, parent in enumerate(tree.parents[:-1]):  # children come before their parents
        nodes[parent, 1 if nodes[parent, 1] < 0 else 2] = node
    leaves = nodes[:, 1] < 0
    nodes[leaves, 0] = np.arange(leaves.sum())
    nodes[leaves, 1:] = 0
    return weights.words()[tree.words], nodes


def make_function():
    """Returns (words, nodes) → the root's hidden state (1, 150)."""
    values = {name: tf.constant(np.ascontiguousarray(value.T))
              for name, value in weights.weights().items()}

    def dense(x, name):
        return tf.matmul(x, values[f"weight_{name}"]) + values[f"bias_{name}"]

    def finish(gates, kept):
        i, o, u = tf.split(gates, 3, 1)
        c = tf.sigmoid(i) * tf.tanh(u) + kept
        return tf.sigmoid(o) * tf.tanh(c), c

    def forward(words, nodes):
        count = tf.shape(nodes)[0]

        def array():
            return tf.TensorArray(tf.float32, count, element_shape=(1, HIDDEN),
                                  clear_after_read=False)

        def step(index, h, c):
            word, left, right = tf.unstack(nodes[index])

            def leaf():
                return finish(dense(words[word][None], "leaf"), tf.zeros((1, HIDDEN)))

            def inner():
                hs = tf.concat((h.read(left), h.read(right)), 0)
                cs = tf.concat((c.read(left), c.read(right)), 0)
                kept = tf.sigmoid(dense(hs, "forget")) * cs
                return finish(dense(tf.reduce_sum(hs, 0, keepdims=True), "node"),
                              tf.reduce_sum(kept, 0, keepdims=True))

            new_h, new_c = tf.cond(word >= 0, leaf, inner)
            return index + 1, h.write(index, new_h), c.write(index, new_c)

        _, h, _ = tf.while_loop(lambda index, *_: index < count, step, (0, array(), array()))
        return h.read(count - 1)

    return forward
