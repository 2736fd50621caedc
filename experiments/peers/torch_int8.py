"""PyTorch, eager, with linear layers quantised dynamically to qint8."""

import warnings

import torch

from experiments.peers import torch_eager


class Peer(torch_eager.Peer):
    """Weights by channel: by tensor it is no faster, and less accurate."""

    def make_module(self, experiment):
        from torch.ao import quantization
        warnings.simplefilter("ignore")  # that it is to move to another package
        return quantization.quantize_dynamic(
            super().make_module(experiment),
            {torch.nn.Linear: quantization.per_channel_dynamic_qconfig}, dtype=torch.qint8)

    def settings(self):
        return (f"quantize_dynamic of linear layers to qint8 by channel, engine "
                f"{torch.backends.quantized.engine}, {super().settings()}")
