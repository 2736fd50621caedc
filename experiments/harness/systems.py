"""The systems that experiments compare."""

import dataclasses

from experiments.harness.errors import USAGE, ExperimentError


@dataclasses.dataclass(frozen=True)
class System:
    module: str  # experiments/peers/MODULE.py
    label: str
    colour: str  # in plots; Okabe and Ito's palette, distinct for the colour-blind too


PEERS = {
    "torch": System("torch_eager", "PyTorch eager", "#999999"),
    "torch_compile": System("torch_compile", "torch.compile", "#E69F00"),
    "onnxruntime": System("onnx_runtime", "ONNX Runtime", "#0072B2"),
    "openvino": System("openvino_cpu", "OpenVINO", "#009E73"),
}
NIMBLE = {
    "nimble": System("nimble", "nimble", "#D55E00"),
    "nimble_loop": System("nimble", "nimble (loop in text IR)", "#CC79A7"),
}
ALL = PEERS | NIMBLE


def parse_peers(text):
    """Returns the peers of --peers in the table's order."""
    chosen = [name for name in text.split(",") if name]
    unknown = set(chosen) - set(PEERS)
    if unknown:
        raise ExperimentError(f"--peers {text}: no peer called {', '.join(sorted(unknown))}; there "
                              f"are {', '.join(PEERS)}", USAGE)
    return [name for name in PEERS if name in chosen]
