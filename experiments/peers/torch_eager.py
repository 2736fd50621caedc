"""PyTorch, eager: the reference of results, and a peer."""

import torch


class Peer:
    """See experiments/harness/worker.py for when which method is called."""

    def __init__(self, experiment, threads, options):
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)
        # f32 throughout: no bf16 inside f32 products.
        torch.set_float32_matmul_precision("highest")
        self.threads = threads
        self.call = self.prepare(self.make_module(experiment))

    def make_module(self, experiment):
        return experiment.make_module()

    def prepare(self, module):
        return module

    def version(self):
        return torch.__version__

    def settings(self):
        return f"eager, inference_mode, {self.threads} threads"

    def bind(self, inputs):
        self.inputs = {name: torch.from_numpy(array) for name, array in inputs.items()}

    def run(self):
        with torch.inference_mode():
            self.result = self.call(**self.inputs)

    def output(self, name):
        return self.result.numpy()  # the modules of the experiments return the one compared tensor
