"""OpenVINO on its CPU plug-in, in bf16."""

import collections

from experiments.peers import openvino_cpu


class Peer(openvino_cpu.Peer):
    PRECISION = "bf16"
    PRODUCTS = ("FullyConnected", "MatMul", "ScaledDotProductAttention", "MHA")

    def settings(self):
        return f"{super().settings()}; ran {self.executed()}"

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
