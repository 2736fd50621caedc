"""ONNX Runtime on its CPU provider, by IO binding: inputs and outputs are bound once a length."""

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
        return (f"ORT_ENABLE_ALL, sequential, {self.threads} intra-op threads, spinning, "
                "IO binding")

    def bind(self, inputs):
        self.inputs = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array)
                       for name, array in inputs.items()}
        self.binding = self.session.io_binding()
        for name, value in self.inputs.items():
            self.binding.bind_ortvalue_input(name, value)
        # A first run tells the outputs' shapes; later ones write into what it has allocated.
        for name in self.names:
            self.binding.bind_output(name, "cpu")
        self.session.run_with_iobinding(self.binding)
        self.results = self.binding.get_outputs()
        for name, value in zip(self.names, self.results):
            self.binding.bind_ortvalue_output(name, value)

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def output(self, name):
        return self.results[self.names.index(name)].numpy().copy()
