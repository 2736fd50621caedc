"""ONNX Runtime on a step model: the loop over tokens is the caller's, in Python, with IO binding.

The present of a step is bound as the past of the next without leaving ONNX Runtime's memory; the
logits come back, and numpy takes their maximum.
"""

import numpy as np
import onnxruntime

from experiments.peers import onnx_runtime


class Peer(onnx_runtime.Peer):
    """See experiments/harness/worker.py for when which method is called."""

    def __init__(self, experiment, threads, options):
        super().__init__(experiment, threads, options)
        self.past = [i for i in self.session.get_inputs() if i.name.startswith("past_key_values")]
        self.present = [i.name.replace("past_key_values", "present") for i in self.past]

    def settings(self):
        return super().settings() + ", IO binding, present bound as the next past"

    def bind(self, inputs):
        self.prompt, self.length = inputs["input_ids"], (
            inputs["input_ids"].shape[1] + int(inputs["max_new"]))
        heads, width = self.past[0].shape[1], self.past[0].shape[3]
        self.empty = onnxruntime.OrtValue.ortvalue_from_numpy(
            np.zeros((1, heads, 0, width), np.float32))

    def run(self):
        tokens = np.empty((1, self.length), np.int64)
        done = self.prompt.shape[1]
        tokens[:, :done] = self.prompt
        mask = np.ones((1, self.length), np.int64)
        positions = np.arange(self.length)[None]
        states, first = [self.empty] * len(self.past), 0
        while done < self.length:
            binding = self.session.io_binding()
            binding.bind_cpu_input("input_ids", tokens[:, first:done])
            binding.bind_cpu_input("attention_mask", np.ascontiguousarray(mask[:, :done]))
            binding.bind_cpu_input("position_ids", np.ascontiguousarray(positions[:, first:done]))
            for port, state in zip(self.past, states):
                binding.bind_ortvalue_input(port.name, state)
            binding.bind_output("logits", "cpu")
            for name in self.present:
                binding.bind_output(name, "cpu")
            self.session.run_with_iobinding(binding)
            logits, *states = binding.get_outputs()
            tokens[0, done] = logits.numpy()[0, -1].argmax()
            first, done = done, done + 1
        self.tokens = tokens

    def output(self, name):
        return self.tokens
