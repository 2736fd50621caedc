"""MXNet on trees, node by node from Python."""

import mxnet as mx
import numpy as np

from experiments.peers import mxnet_cpu


class Peer(mxnet_cpu.Peer):
    """See experiments/harness/worker.py for when which method is called."""

    def __init__(self, experiment, threads, options):
        from experiments.tree_lstm import mxnet_model
        self.threads = threads
        self.prepare, self.call = mxnet_model.make_function()

    def settings(self):
        return super().settings() + ", recursion in Python"

    def bind(self, inputs):
        self.trees = [self.prepare(tree) for tree in inputs["trees"]]
        mx.nd.waitall()

    def run(self):
        call = self.call
        self.results = [call(tree) for tree in self.trees]
        for result in self.results:
            result.wait_to_read()

    def output(self, name):
        return np.concatenate([result.asnumpy() for result in self.results])
