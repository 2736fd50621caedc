"""OpenVINO on a model that its own quantiser, NNCF, calibrated."""

import importlib.metadata

from experiments.peers import openvino_int8_qdq


class Peer(openvino_int8_qdq.Peer):
    KIND = "nncf"

    def settings(self):
        version = importlib.metadata.version("nncf")
        return super().settings().replace(self.QUANTISER, f"NNCF {version} for transformers", 1)
