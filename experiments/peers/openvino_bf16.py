"""OpenVINO on its CPU plug-in, in bf16."""

from experiments.peers import openvino_cpu


class Peer(openvino_cpu.Peer):
    PRECISION = "bf16"

    def settings(self):
        return f"{super().settings()}; ran {self.executed()}"
