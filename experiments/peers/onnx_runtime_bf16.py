"""ONNX Runtime with a model whose products and convolutions are in bf16
(experiments/precision/onnx_bf16.py)."""

from experiments.peers import onnx_runtime
from experiments.precision import quantise


class Peer(onnx_runtime.Peer):
    def __init__(self, experiment, threads, options):
        model = quantise.make("bf16", options["onnx_model"])
        super().__init__(experiment, threads, {**options, "onnxruntime_model": str(model)})

    def settings(self):
        return f"products and convolutions with constants in bf16, {super().settings()}"
