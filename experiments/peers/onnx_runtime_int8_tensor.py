"""ONNX Runtime with products quantised dynamically, weights by tensor."""

from experiments.peers import onnx_runtime_int8


class Peer(onnx_runtime_int8.Peer):
    KIND, WEIGHTS = "dynamic-tensor", "by tensor"
