"""ONNX Runtime with a model whose products are in bf16 (experiments/precision/onnx_bf16.py)."""

import pathlib

from experiments.peers import onnx_runtime


class Peer(onnx_runtime.Peer):
    def __init__(self, experiment, threads, options):
        model = pathlib.Path(options["onnx_model"]).with_name("bf16.onnx")
        super().__init__(experiment, threads, {**options, "onnxruntime_model": str(model)})

    def settings(self):
        return f"products with constants in bf16, {super().settings()}"
