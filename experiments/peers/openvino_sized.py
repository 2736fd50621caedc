"""OpenVINO compiled anew for each size of its inputs, outside the clock: what it gains where it
knows them."""

from experiments.peers import openvino_cpu


class Peer(openvino_cpu.Peer):
    """See experiments/harness/worker.py for when which method is called."""

    def load(self, model):
        self.model = model  # compiled at the first inputs

    def settings(self):
        return f"compiled for each size, {super().settings()}"

    def bind(self, inputs):
        self.model.reshape({name: list(array.shape) for name, array in inputs.items()})
        self.compile(self.model)
        super().bind(inputs)
