"""OpenVINO on its CPU plug-in, in f32."""

import openvino


class Peer:
    """See experiments/harness/worker.py for when which method is called."""

    PRECISION = "f32"

    def __init__(self, experiment, threads, options):
        self.core, self.threads = openvino.Core(), threads
        self.load(self.core.read_model(options["onnx_model"]))

    def load(self, model):
        self.compile(model)

    def compile(self, model):
        # Without the precision hint the plug-in computes in bf16 where the CPU has AMX.
        self.compiled = self.core.compile_model(model, "CPU", {
            "INFERENCE_PRECISION_HINT": self.PRECISION,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": self.threads,
            "NUM_STREAMS": 1,
        })
        self.request = self.compiled.create_infer_request()

    def version(self):
        return openvino.__version__

    def settings(self):
        precision = self.compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        return f"inference precision {precision}, latency hint, {self.threads} threads, 1 stream"

    def bind(self, inputs):
        self.inputs = {name: openvino.Tensor(array, shared_memory=True)
                       for name, array in inputs.items()}
        for name, tensor in self.inputs.items():
            self.request.set_tensor(name, tensor)

    def run(self):
        self.request.start_async()
        self.request.wait()

    def output(self, name):
        return self.request.get_tensor(name).data.copy()
