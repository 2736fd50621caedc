"""OpenVINO on a model with QuantizeLinear and DequantizeLinear: it computes in 8 bits what they
enclose."""

from experiments.peers import openvino_cpu


class Peer(openvino_cpu.Peer):
    def settings(self):
        return f"{super().settings()}; ran {self.executed()}"
