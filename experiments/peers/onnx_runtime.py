"""ONNX Runtime on its CPU provider."""

import onnxruntime


class Peer:
    """See experiments/harness/worker.py for when which method is called."""

    def __init__(self, experiment, threads, options):
        settings = onnxruntime.SessionOptions()
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        settings.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        self.threads = threads
        self.session = onnxruntime.InferenceSession(
            options["onnxruntime_model"], settings, providers=["CPUExecutionProvider"])
        self.names = [output.name for output in self.session.get_outputs()]

    def version(self):
        return onnxruntime.__version__

    def settings(self):
        return f"ORT_ENABLE_ALL, sequential, {self.threads} intra-op threads, spinning"

    def bind(self, inputs):
        self.inputs = inputs

    def run(self):
        self.result = self.session.run(self.names, self.inputs)

    def output(self, name):
        return self.result[self.names.index(name)]
