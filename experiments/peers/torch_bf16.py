"""PyTorch, eager, under autocast to bf16."""

import torch

from experiments.peers import torch_eager


class Peer(torch_eager.Peer):
    """Autocast would round the weights of linear layers anew in each run, which takes longer than
    the products of a short input: they are rounded once, ahead. Results are the same."""

    MODE = "eager, "

    def make_module(self, experiment):
        module = super().make_module(experiment)
        for part in module.modules():
            if isinstance(part, torch.nn.Linear):
                part.to(torch.bfloat16)
        return module

    def settings(self):
        instruction = "AVX512-BF16" if torch.cpu._is_avx512_bf16_supported() else "no AVX512-BF16"
        return (f"{self.MODE}autocast to bf16, weights of linear layers rounded ahead, {instruction}, "
                f"inference_mode, {self.threads} threads")

    def run(self):
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            self.result = self.call(**self.inputs)

    def output(self, name):
        return self.result.float().numpy()
