"""The systems that experiments compare."""

import dataclasses

from experiments.harness.errors import USAGE, ExperimentError


@dataclasses.dataclass(frozen=True)
class System:
    module: str  # experiments/peers/MODULE.py
    label: str
    colour: str  # in plots; Okabe and Ito's palette, distinct for the colour-blind too
    environment: str | None = None  # of harness/environments.py; None: the common one
    line: str = "-"  # in plots; dashed where another system has the colour


PEERS = {
    "torch": System("torch_eager", "PyTorch eager", "#999999"),
    "torch_compile": System("torch_compile", "torch.compile", "#E69F00"),
    "onnxruntime": System("onnx_runtime", "ONNX Runtime", "#0072B2"),
    "openvino": System("openvino_cpu", "OpenVINO", "#009E73"),
    "openvino_sized": System("openvino_sized", "OpenVINO for the size", "#56B4E9"),
    "torch_channels_last": System("torch_channels_last", "torch.compile", "#E69F00"),
    "torch_f64": System("torch_f64", "PyTorch f64", "#000000"),
    "torch_bf16": System("torch_bf16", "PyTorch eager bf16", "#999999", line="--"),
    "torch_compile_bf16": System("torch_compile_bf16", "torch.compile bf16", "#E69F00", line="--"),
    "onnxruntime_bf16": System("onnx_runtime_bf16", "ONNX Runtime bf16", "#0072B2", line="--"),
    "openvino_bf16": System("openvino_bf16", "OpenVINO bf16", "#009E73", line="--"),
    "torch_channels_last_bf16": System("torch_channels_last_bf16", "torch.compile bf16", "#E69F00",
                                       line="--"),
    "onnxruntime_qdq": System("onnx_runtime", "ONNX Runtime int8", "#0072B2", line=":"),
    "openvino_qdq": System("openvino_qdq", "OpenVINO int8", "#009E73", line=":"),
    "torch_int8": System("torch_int8", "PyTorch eager int8", "#999999", line=":"),
    "onnxruntime_int8": System("onnx_runtime_int8", "ONNX Runtime int8, by channel", "#0072B2",
                               line=":"),
    "onnxruntime_int8_tensor": System("onnx_runtime_int8_tensor", "ONNX Runtime int8, by tensor",
                                      "#56B4E9", line=":"),
    "openvino_int8_dynamic": System("openvino_int8_dynamic", "OpenVINO int8, dynamic", "#009E73",
                                    line=":"),
    "openvino_int8_nncf": System("openvino_int8_nncf", "OpenVINO int8, NNCF", "#882255", "nncf",
                                 line=":"),
    "openvino_int8_qdq": System("openvino_int8_qdq", "OpenVINO int8, calibrated", "#F0E442",
                                line=":"),
    "tensorflow": System("tensorflow_function", "TensorFlow", "#56B4E9", "tensorflow"),
    "xla": System("tensorflow_xla", "TensorFlow XLA", "#000000", "tensorflow"),
    "tvm": System("tvm_relax", "TVM", "#F0E442"),
    "mxnet": System("mxnet_cpu", "MXNet", "#882255", "mxnet"),
    "onnxruntime_decode": System("onnx_runtime_decode", "ONNX Runtime", "#0072B2"),
    "onnxruntime_shared": System("onnx_runtime_shared_cache", "ONNX Runtime, GQA", "#009E73"),
    "torch_trees": System("torch_trees", "PyTorch by node", "#999999"),
    "torch_levels": System("torch_levels", "PyTorch by level", "#E69F00"),
    "tensorflow_trees": System("tensorflow_trees", "TensorFlow", "#56B4E9", "tensorflow"),
    "xla_trees": System("tensorflow_xla_trees", "TensorFlow XLA", "#000000", "tensorflow"),
    "mxnet_trees": System("mxnet_trees", "MXNet", "#882255", "mxnet"),
    "dynet": System("dynet", "DyNet", "#0072B2"),
    "dynet_batched": System("dynet_batched", "DyNet, auto-batched", "#009E73"),
}
NIMBLE = {
    "nimble": System("nimble", "nimble", "#D55E00"),
    "nimble_default": System("nimble", "nimble, default schedules", "#CC79A7"),
    "nimble_bf16": System("nimble", "nimble bf16", "#D55E00", line="--"),
    "nimble_int8": System("nimble", "nimble int8", "#D55E00", line=":"),
    "nimble_int8_reduced": System("nimble", "nimble int8-reduced", "#D55E00", line=":"),
    "nimble_winograd_2": System("nimble", "nimble, tiles of 2 × 2", "#009E73", line="-."),
    "nimble_winograd_4": System("nimble", "nimble, tiles of 4 × 4", "#0072B2", line="-."),
    "nimble_loop": System("nimble", "nimble (loop in text IR)", "#CC79A7"),
    "nimble_trees": System("nimble_trees", "nimble", "#D55E00"),
}
ONNX_PEERS = ("torch", "torch_compile", "onnxruntime", "openvino")
IMAGE_PEERS = ("onnxruntime", "openvino", "openvino_sized", "torch_channels_last")
TABLE_PEERS = (*ONNX_PEERS, "tensorflow", "xla", "tvm", "mxnet")  # of the paper's Tables 1 and 3
ALL = PEERS | NIMBLE


def parse_peers(text, possible):
    """Returns the peers of --peers in the order of `possible`."""
    chosen = [name for name in text.split(",") if name]
    unknown = set(chosen) - set(possible)
    if unknown:
        raise ExperimentError(f"--peers {text}: no peer called {', '.join(sorted(unknown))}; there "
                              f"are {', '.join(possible)}", USAGE)
    return [name for name in possible if name in chosen]
