"""TensorFlow: a tf.function traced once for all lengths, its weights frozen to constants."""

import re

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2


class Peer:
    """See experiments/harness/worker.py for when which method is called.

    Freezing lets the graph's optimizer fold weights and fuse what oneDNN, on by default, has fused
    kernels for.
    """

    JIT = False

    def __init__(self, experiment, threads, options):
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        self.threads = threads
        self.call = self.prepare(experiment)

    def prepare(self, experiment):
        function = experiment.make_tensorflow()
        # The dims that differ between two lengths are the dynamic ones.
        shorter, longer = experiment.inputs(20), experiment.inputs(30)
        signature = [
            tf.TensorSpec([a if a == b else None for a, b in zip(array.shape, longer[name].shape)],
                          array.dtype, name) for name, array in shorter.items()]
        names = list(shorter)
        return self.freeze(lambda *tensors: function(**dict(zip(names, tensors))), signature)

    def freeze(self, function, signature):
        traced = tf.function(function, input_signature=signature, jit_compile=self.JIT or None,
                             autograph=False)
        if self.JIT:  # XLA has the weights as constants already
            return traced.get_concrete_function()
        return convert_variables_to_constants_v2(traced.get_concrete_function())

    def version(self):
        return tf.__version__

    def settings(self):
        how = ("tf.function(jit_compile=True): XLA compiles each length on its first run"
               if self.JIT else "tf.function, frozen, oneDNN on")
        return f"{how}, {self.threads} intra-op threads"

    def bind(self, inputs):
        self.inputs = [tf.constant(array) for array in inputs.values()]
        self.compile_first(*self.inputs)

    def compile_first(self, *tensors):
        """Runs once; XLA's pages of an operator that it lacks become one line."""
        try:
            self.call(*tensors)
        except tf.errors.InvalidArgumentError as error:
            lacking = re.search(r"No registered '(\w+)' OpKernel for (\w+)", str(error))
            if lacking is None:
                raise
            raise NotImplementedError(f"{lacking[2]} has no {lacking[1]}") from error

    def run(self):
        self.result = self.call(*self.inputs)

    def output(self, name):
        result = self.result[0] if isinstance(self.result, (list, tuple)) else self.result
        return result.numpy()
