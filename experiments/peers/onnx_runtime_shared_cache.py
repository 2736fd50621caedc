"""ONNX Runtime with caches for the whole context, which its GroupQueryAttention extends in place.

Input and output of each state are bound to one buffer (experiments/decode/shared_cache.py).
"""

import numpy as np

from experiments.peers import onnx_runtime_decode


class Peer(onnx_runtime_decode.Peer):
    """See experiments/harness/worker.py for when which method is called."""

    MODEL = "onnxruntime_model"

    def settings(self):
        return super().settings().replace(
            "present bound as the next past", "GroupQueryAttention, past and present share buffers")

    def first_states(self):
        return [self.cache(self.shape[2]) for _ in self.past]

    def bind_step(self, binding, states, done):
        binding.bind_cpu_input("seqlens_k", np.array([done - 1], np.int32))
        binding.bind_cpu_input("total_sequence_length", np.array(done, np.int32))
        for port, name, state in zip(self.past, self.present, states):
            binding.bind_ortvalue_input(port.name, state)
            binding.bind_ortvalue_output(name, state)

    def next_states(self, states, outputs):
        return states
