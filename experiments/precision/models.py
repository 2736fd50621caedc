"""What experiments/run precision measures: a table of models and precisions.

A new model or precision is a row here; what its systems are called stands in harness/systems.py.
"""

import dataclasses

from experiments.harness.errors import ExperimentError

EXACT, SINGLE = "torch_f64", "torch"  # the reference of results, and the one of f32


@dataclasses.dataclass(frozen=True)
class Encoder:
    """What BERT computes and reads for one sentence of n tokens: the products with constants of its
    layers, and attention."""

    layers: int
    width: int
    inner: int  # between the two dense layers

    def weights(self):
        """Returns how many numbers the matrices of its products have."""
        return self.layers * (4 * self.width ** 2 + 2 * self.width * self.inner)

    def flops(self, n):
        """Returns the operations of products and attention; a multiply-add is two."""
        attention = 2 * self.layers * n * n * self.width  # multiply-adds: scores, weighted values
        return 2 * (n * self.weights() + attention)


@dataclasses.dataclass(frozen=True)
class Precision:
    """A row of `--precision`."""

    name: str
    # Largest relative error of rounding a number to it; where one scale serves many numbers, of
    # one of a typical size.
    roundoff: float
    weight_bytes: int
    peak: str  # dtype of the ceiling of `nimble doctor --measure`
    most_error: float  # the bar: nimble's error over that of the most accurate rival, at any length
    nimble: str  # systems: nimble's, the peers that compute in it
    rivals: tuple
    others: tuple  # and what is shown beside


F32_ROUNDOFF = 2.0 ** -24
BESIDE = ("openvino", "onnxruntime")
BF16 = Precision(
    "bf16", roundoff=2.0 ** -8, weight_bytes=2, peak="bf16", most_error=1.25, nimble="nimble_bf16",
    rivals=("torch_bf16", "torch_compile_bf16", "openvino_bf16", "onnxruntime_bf16"),
    others=BESIDE)
# A step is 1/127 of the largest of those that share a scale, which is up to 16 times the typical
# one: activations of transformers have such outliers.
INT8 = Precision(
    "int8", roundoff=16 / 254, weight_bytes=1, peak="i8", most_error=1.0, nimble="nimble_int8",
    rivals=("torch_int8", "onnxruntime_int8", "onnxruntime_int8_tensor", "openvino_int8_dynamic",
            "openvino_int8_nncf", "openvino_int8_qdq"),
    others=BESIDE)
# Half a bit less of rows and weights. The peers are those of int8: ONNX Runtime's weights have 7 bits
# on a CPU without VNNI.
INT8_REDUCED = dataclasses.replace(
    INT8, name="int8-reduced", roundoff=16 / 180, nimble="nimble_int8_reduced")
PRECISIONS = (BF16, INT8, INT8_REDUCED)


@dataclasses.dataclass(frozen=True)
class Row:
    model: str  # the experiment that has it in f32
    title: str
    work: Encoder
    precision: Precision
    least: float  # the bar: the best peer's time over nimble's
    least_correlation: float | None = None  # of sentences' similarities with those of f32

    @property
    def key(self):
        return f"{self.model}-{self.precision.name}"

    @property
    def case(self):
        return f"{self.title}, {self.precision.name}"

    @property
    def peers(self):
        return (EXACT, SINGLE, *self.precision.rivals, *self.precision.others)


ROWS = (
    Row("bert-base", "BERT-base", Encoder(12, 768, 3072), BF16, least=1.2),
    Row("minilm", "all-MiniLM-L6-v2", Encoder(6, 384, 1536), BF16, least=1.2,
        least_correlation=0.995),
    Row("bert-base", "BERT-base", Encoder(12, 768, 3072), INT8, least=1.1),
    Row("minilm", "all-MiniLM-L6-v2", Encoder(6, 384, 1536), INT8, least=1.1,
        least_correlation=0.995),
    Row("bert-base", "BERT-base", Encoder(12, 768, 3072), INT8_REDUCED, least=1.1),
    Row("minilm", "all-MiniLM-L6-v2", Encoder(6, 384, 1536), INT8_REDUCED, least=1.1,
        least_correlation=0.995),
)


def row_of(experiment):
    """Returns the row of one of the experiments that experiment.py makes."""
    for row in ROWS:
        if row.case == experiment.case:
            return row
    raise ExperimentError(f"{experiment.name}: no row of experiments/precision/models.py")
