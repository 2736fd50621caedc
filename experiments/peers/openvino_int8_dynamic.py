"""OpenVINO with weights in 8 bits and activations quantised as they come, group by group."""

from experiments.peers import openvino_cpu, trial
from experiments.precision import quantise

GROUPS = (32, 64, 128, 256)  # of how many numbers one scale is; 32 is the plug-in's own choice


class Peer(openvino_cpu.Peer):
    """The plug-in quantises activations of products whose weights are integers in the model."""

    def __init__(self, experiment, threads, options):
        file = quantise.make("weights", options["onnx_model"])
        self.experiment, self.more = experiment, {}
        super().__init__(experiment, threads, {**options, "onnx_model": str(file)})

    def properties(self):
        return {**super().properties(), **self.more}

    def load(self, model):
        def load(group):
            self.more = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": group}
            self.compile(model)
        self.trial = trial.Trial(self, {f"groups of {group}": group for group in GROUPS}, load,
                                 self.experiment.inputs(trial.LENGTH))

    def settings(self):
        return (f"weights in 8 bits by channel, dynamic quantisation in {self.trial.text()}; "
                f"{super().settings()}; ran {self.executed()}")
