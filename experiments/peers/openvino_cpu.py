"""OpenVINO on its CPU plug-in, in f32."""

import collections

import openvino


class Peer:
    """See experiments/harness/worker.py for when which method is called."""

    PRECISION = "f32"
    PRODUCTS = ("FullyConnected", "MatMul", "ScaledDotProductAttention", "MHA", "Convolution")

    def __init__(self, experiment, threads, options):
        self.core, self.threads = openvino.Core(), threads
        self.load(self.core.read_model(options["onnx_model"]))

    def load(self, model):
        self.compile(model)

    def properties(self):
        # Without the precision hint the plug-in computes in bf16 where the CPU has AMX.
        return {"INFERENCE_PRECISION_HINT": self.PRECISION, "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_NUM_THREADS": self.threads, "NUM_STREAMS": 1}

    def compile(self, model):
        self.compiled = self.core.compile_model(model, "CPU", self.properties())
        self.request = self.compiled.create_infer_request()

    def version(self):
        return openvino.__version__

    def settings(self):
        precision = self.compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        return f"inference precision {precision}, latency hint, {self.threads} threads, 1 stream"

    def executed(self):
        """Returns what the plug-in says that it runs its products in: a hint alone binds nothing.
        """
        def text(info, key):
            value = info[key] if key in info else "unknown"
            return str(getattr(value, "value", value))  # some versions wrap it

        counts = collections.Counter()
        for node in self.compiled.get_runtime_model().get_ops():
            info = node.get_rt_info()
            kind = text(info, "layerType")
            if kind in self.PRODUCTS:
                counts[f"{kind} in {text(info, 'runtimePrecision')}"] += 1
        return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "unknown"

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
