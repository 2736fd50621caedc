"""OpenVINO on its CPU plug-in, in f32."""

import openvino


class Peer:
    """See experiments/harness/worker.py for when which method is called."""

    def __init__(self, experiment, threads, options):
        core = openvino.Core()
        # Without the precision hint the plug-in computes in bf16 where the CPU has AMX.
        self.compiled = core.compile_model(core.read_model(options["onnx_model"]), "CPU", {
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
        })
        self.threads = threads
        self.request = self.compiled.create_infer_request()

    def version(self):
        return openvino.__version__

    def settings(self):
        precision = self.compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        return f"inference precision {precision}, latency hint, {self.threads} threads, 1 stream"

    def bind(self, inputs):
        self.inputs = inputs

    def run(self):
        self.result = self.request.infer(self.inputs, share_inputs=True, share_outputs=True)

    def output(self, name):
        return self.result[name].copy()
