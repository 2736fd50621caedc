"""PyTorch on trees, all nodes of one height in one product."""

from experiments.peers import torch_trees


class Peer(torch_trees.Peer):
    def make_module(self, experiment):
        return experiment.make_module(by_level=True)

    def settings(self):
        return f"eager, batched by level by hand, inference_mode, {self.threads} threads"
