"""PyTorch on trees, node by node: the reference of results, and a peer."""

import torch

from experiments.peers import torch_eager


class Peer(torch_eager.Peer):
    """See experiments/harness/worker.py for when which method is called."""

    def settings(self):
        return f"eager, recursion in Python, inference_mode, {self.threads} threads"

    def bind(self, inputs):
        self.trees = [self.call.prepare(tree) for tree in inputs["trees"]]

    def run(self):
        call = self.call
        with torch.inference_mode():
            self.result = [call(tree) for tree in self.trees]

    def output(self, name):
        return torch.cat(self.result).numpy()
