"""OpenVINO on a model that ONNX Runtime's static quantiser calibrated."""

from experiments.peers import openvino_cpu
from experiments.precision import quantise


class Peer(openvino_cpu.Peer):
    KIND, QUANTISER = "static", "ONNX Runtime's quantize_static"

    def __init__(self, experiment, threads, options):
        samples = experiment.calibration()
        file = quantise.make(self.KIND, options["onnx_model"], samples)
        self.how = f"{self.QUANTISER}, calibrated on {len(samples)} inputs"
        super().__init__(experiment, threads, {**options, "onnx_model": str(file)})

    def settings(self):
        return f"{self.how}; {super().settings()}; ran {self.executed()}"
