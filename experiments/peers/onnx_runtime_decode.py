"""ONNX Runtime on a step model: the loop over tokens is the caller's, in Python, with IO binding.

The present of a step is bound as the past of the next without leaving ONNX Runtime's memory; the
logits come back, and numpy takes their maximum.
"""

import numpy as np
import onnxruntime

from experiments.peers import onnx_runtime


class Peer(onnx_runtime.Peer):
    """See experiments/harness/worker.py for when which method is called."""

    MODEL = "onnx_model"  # of the worker's options

    def __init__(self, experiment, threads, options):
        super().__init__(experiment, threads, {"onnxruntime_model": options[self.MODEL]})
        self.past = [i for i in self.session.get_inputs() if i.name.startswith("past_key_values")]
        self.present = [i.name.replace("past_key_values", "present") for i in self.past]
        self.shape = (1, self.past[0].shape[1], experiment.context, self.past[0].shape[3])

    def settings(self):
        return super().settings() + ", present bound as the next past"

    def bind(self, inputs):
        self.prompt, self.length = inputs["input_ids"], (
            inputs["input_ids"].shape[1] + int(inputs["max_new"]))
        self.mask = np.ones((1, self.length), np.int64)
        self.positions = np.arange(self.length)[None]
        self.states = self.first_states()

    def cache(self, positions):
        heads, width = self.shape[1], self.shape[3]
        return onnxruntime.OrtValue.ortvalue_from_numpy(
            np.zeros((1, heads, positions, width), np.float32))

    def first_states(self):
        return [self.cache(0)] * len(self.past)

    def bind_step(self, binding, states, done):
        """Binds what a step takes besides tokens and positions, and the present."""
        binding.bind_cpu_input("attention_mask", np.ascontiguousarray(self.mask[:, :done]))
        for port, name, state in zip(self.past, self.present, states):
            binding.bind_ortvalue_input(port.name, state)
            binding.bind_output(name, "cpu")

    def next_states(self, states, outputs):
        return outputs

    def run(self):
        tokens = np.empty((1, self.length), np.int64)
        done = self.prompt.shape[1]
        tokens[:, :done] = self.prompt
        states, first = self.states, 0
        while done < self.length:
            binding = self.session.io_binding()
            binding.bind_cpu_input("input_ids", tokens[:, first:done])
            binding.bind_cpu_input("position_ids",
                                   np.ascontiguousarray(self.positions[:, first:done]))
            binding.bind_output("logits", "cpu")
            self.bind_step(binding, states, done)
            self.session.run_with_iobinding(binding)
            logits, *outputs = binding.get_outputs()
            tokens[0, done] = logits.numpy()[0, -1].argmax()
            states = self.next_states(states, outputs)
            first, done = done, done + 1
        self.tokens = tokens

    def output(self, name):
        return self.tokens
