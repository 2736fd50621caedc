"""ONNX Runtime with products quantised dynamically, weights by channel."""

import pathlib

from experiments.peers import onnx_runtime, trial
from experiments.precision import quantise


class Peer(onnx_runtime.Peer):
    """Both models are quantised, the one that its transformer optimizer fused and the plain one:
    fused attention takes weights by tensor alone and has other kernels."""

    KIND, WEIGHTS = "dynamic-channel", "by channel"

    def __init__(self, experiment, threads, options):
        def load(source):
            file = quantise.make(self.KIND, source)
            super(Peer, self).__init__(experiment, threads,
                                       {**options, "onnxruntime_model": str(file)})
        variants = {"fused": pathlib.Path(options["onnxruntime_model"]),
                    "plain": pathlib.Path(options["onnx_model"])}
        self.trial = trial.Trial(self, variants, load, experiment.inputs(trial.LENGTH))

    def settings(self):
        narrow = ", of 7 bits for a CPU without VNNI" if quantise.without_vnni() else ""
        return (f"quantize_dynamic, weights {self.WEIGHTS}{narrow}, of the models "
                f"{self.trial.text()}; {super().settings()}")
