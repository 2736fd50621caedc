"""What experiments/run images-precision measures: the networks of experiments/images in bf16, and two
of them in 8-bit integers, as ONNX Runtime's static quantiser writes them.

A row of KINDS is a type; what its systems are called stands in harness/systems.py.
"""

import dataclasses

from experiments.images import networks
from experiments.images.networks import OWN
from experiments.precision.models import Precision

CALIBRATED, CLASSIFIED = 16, 32  # drawn images that the quantiser sees; that top-1 is compared on
FIRST_CALIBRATED = 1000  # number of the first of the former; the latter count from 1
AIM = 1.2  # of the best peer's time over nimble's; the bar is lower


@dataclasses.dataclass(frozen=True)
class Kind:
    precision: Precision
    networks: tuple
    options: tuple = ()  # of `nimble compile` and `nimble tune`
    quantised: bool = False  # the systems read a model with QuantizeLinear and DequantizeLinear
    least: float = 1.0  # the bar: the best peer's time over nimble's


KINDS = {
    "bf16": Kind(Precision(
        "bf16", roundoff=2.0 ** -8, weight_bytes=2, peak="bf16", most_error=1.25,
        nimble="nimble_bf16",
        rivals=("openvino_bf16", "torch_channels_last_bf16", "onnxruntime_bf16"), others=()),
        tuple(networks.NETWORKS), options=("--precision", "bf16")),
    # One file for all systems: they differ by how they round alone.
    "int8": Kind(Precision(
        "int8", roundoff=16 / 254, weight_bytes=1, peak="i8", most_error=1.1, nimble="nimble_int8",
        rivals=("onnxruntime_qdq", "openvino_qdq"), others=()),
        ("resnet-50", "mobilenet-v2"), quantised=True),
}


@dataclasses.dataclass(frozen=True)
class Case:
    network: str
    kind: str

    @property
    def precision(self):
        return KINDS[self.kind].precision

    @property
    def title(self):
        return f"{networks.NETWORKS[self.network].title}, {self.kind}"


CASES = {f"{network}-{kind}": Case(network, kind)
         for kind, row in KINDS.items() for network in row.networks}
PEERS = tuple(name for row in KINDS.values() for name in row.precision.rivals)


def calibration():
    """Returns the images that the quantiser sees: none that is measured or classified."""
    return [networks.inputs(OWN, FIRST_CALIBRATED + number) for number in range(CALIBRATED)]
