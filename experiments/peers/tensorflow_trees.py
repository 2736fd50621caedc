"""TensorFlow on trees: a while loop over a tree's nodes, traced once for all trees."""

import numpy as np
import tensorflow as tf

from experiments.peers import tensorflow_function


class Peer(tensorflow_function.Peer):
    """See experiments/harness/worker.py for when which method is called."""

    def prepare(self, experiment):
        from experiments.tree_lstm import tensorflow_model
        self.prepare_tree = tensorflow_model.prepare
        return self.freeze(tensorflow_model.make_function(), [
            tf.TensorSpec((None, 300), tf.float32), tf.TensorSpec((None, 3), tf.int32)])

    def settings(self):
        return super().settings().replace("compiles each length", "compiles each tree's size")

    def bind(self, inputs):
        self.trees = [tuple(tf.constant(array) for array in self.prepare_tree(tree))
                      for tree in inputs["trees"]]
        self.compile_first(*self.trees[0])

    def run(self):
        call = self.call
        self.results = [call(*tree) for tree in self.trees]

    def output(self, name):
        return np.concatenate([(one[0] if isinstance(one, (list, tuple)) else one).numpy()
                               for one in self.results])
