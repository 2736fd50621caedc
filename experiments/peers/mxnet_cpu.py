"""MXNet, Gluon blocks hybridized, on its CPU back end with oneDNN."""

import mxnet as mx


class Peer:
    """See experiments/harness/worker.py for when which method is called."""

    def __init__(self, experiment, threads, options):
        self.threads = threads  # OpenMP's, which the driver sets in the environment
        self.call = experiment.make_mxnet()

    def version(self):
        return mx.__version__

    def settings(self):
        dnn = mx.runtime.Features().is_enabled("MKLDNN")
        return f"Gluon, hybridized, oneDNN {'on' if dnn else 'off'}, {self.threads} OpenMP threads"

    def bind(self, inputs):
        self.inputs = {name: mx.nd.array(array, dtype=array.dtype)
                       for name, array in inputs.items()}
        mx.nd.waitall()

    def run(self):
        self.result = self.call(**self.inputs)
        self.result.wait_to_read()

    def output(self, name):
        return self.result.asnumpy()
