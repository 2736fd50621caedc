"""DyNet on its Eigen backend, driven from C++ (dynet_tree_lstm.cpp), without auto-batching."""

import ctypes

import numpy as np

from experiments.peers import dynet_build

FLOATS = ctypes.POINTER(ctypes.c_float)
INTEGERS = ctypes.POINTER(ctypes.c_int64)


class Peer:
    """See experiments/harness/worker.py for when which method is called."""

    autobatch = 0

    def __init__(self, experiment, threads, options):
        self.lib = ctypes.CDLL(str(dynet_build.library()))
        self.lib.tree_lstm_run.argtypes = [INTEGERS, ctypes.c_int64, INTEGERS, FLOATS]
        arguments = [np.ascontiguousarray(a, np.float32) for a in experiment.dynet_arguments()]
        self.lib.tree_lstm_start(self.autobatch, len(arguments[0]),
                                 *(a.ctypes.data_as(FLOATS) for a in arguments))

    def version(self):
        return dynet_build.VERSION

    def settings(self):
        return ("Eigen backend, -march=native, C++, one thread, auto-batching "
                + ("on" if self.autobatch else "off"))

    def bind(self, inputs):
        self.calls, self.kept = [], []
        self.result = np.empty((len(inputs["trees"]), 150), np.float32)
        for tree, row in zip(inputs["trees"], self.result):
            self.kept.append((tree.parents, tree.words))
            self.calls.append((tree.parents.ctypes.data_as(INTEGERS), len(tree.parents),
                               tree.words.ctypes.data_as(INTEGERS), row.ctypes.data_as(FLOATS)))

    def run(self):
        run = self.lib.tree_lstm_run
        for call in self.calls:
            run(*call)

    def output(self, name):
        return self.result.copy()
