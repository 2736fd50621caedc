"""PyTorch with torch.compile(dynamic=True): one compilation for all lengths."""

import functools

import torch

from experiments.peers import torch_eager


class Peer(torch_eager.Peer):
    """Freezing, the C++ wrapper and max-autotune were tried and were no faster on these models."""

    def prepare(self, module):
        compiler = functools.partial(torch.compile, dynamic=True)
        self.inside = hasattr(module, "compile_inside")
        if self.inside:
            module.compile_inside(compiler)
            return module
        return compiler(module)

    def settings(self):
        what = " of the step, the loop in Python" if self.inside else ""
        return (f"torch.compile(dynamic=True){what}, inductor, inference_mode, "
                f"{self.threads} threads")
