"""PyTorch with torch.compile(dynamic=True) under autocast to bf16."""

import functools

import torch

from experiments.peers import torch_bf16


class Peer(torch_bf16.Peer):
    def prepare(self, module):
        return functools.partial(torch.compile, dynamic=True)(module)

    def settings(self):
        return f"torch.compile(dynamic=True), inductor; {super().settings()}"
