"""TensorFlow with XLA, which compiles anew for each length; that happens before the clock."""

from experiments.peers import tensorflow_function


class Peer(tensorflow_function.Peer):
    JIT = True
