"""PyTorch with torch.compile and images with their channels last, under autocast to bf16."""

import torch

from experiments.peers import torch_channels_last


class Peer(torch_channels_last.Peer):
    """Freezing rounds and packs the weights once."""

    def settings(self):
        instruction = "AVX512-BF16" if torch.cpu._is_avx512_bf16_supported() else "no AVX512-BF16"
        return f"autocast to bf16, {instruction}; {super().settings()}"

    def run(self):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            super().run()

    def output(self, name):
        return self.result.float().numpy()
