"""TensorFlow with XLA on trees: it compiles anew for each number of nodes, before the clock."""

from experiments.peers import tensorflow_trees


class Peer(tensorflow_trees.Peer):
    JIT = True
