"""The models whose products and convolutions a vendor's library competes for, each in f32 and bf16."""

import dataclasses
from collections.abc import Callable

PRECISIONS = {"f32": (), "bf16": ("--precision", "bf16")}
# Linux's names of CPU features, of which one makes products in the type; without any, both sides
# would be compared in what stands in for the instructions.
INSTRUCTIONS = {"bf16": {"avx512_bf16", "amx_bf16"}}


@dataclasses.dataclass(frozen=True)
class Model:
    title: str
    make: Callable  # (folder) → model argument of `nimble`
    shapes: tuple  # what it is run at: ((symbol, extent), …) each
    fixed: dict = dataclasses.field(default_factory=dict)  # symbols of one extent

    def sizes(self, path):
        """Writes the shapes as a trace; returns what `nimble tune` is told of sizes. A vendor's
        routine is made ready for single sizes alone, so tuning has to meet those that are run."""
        symbols = [symbol for symbol, _ in self.shapes[0] if symbol not in self.fixed]
        rows = ["\t".join(str(dict(shape)[symbol]) for symbol in symbols) for shape in self.shapes]
        path.write_text("\n".join(["\t".join(symbols), *rows]) + "\n", encoding="utf-8")
        fixed = [word for symbol, extent in self.fixed.items()
                 for word in ("--fix", f"{symbol}={extent}")]
        return [*fixed, "--trace", f"{path}:{','.join(symbols)}"]


def sentences(*lengths):
    return tuple((("b", 1), ("n", length)) for length in lengths)


def images(*sizes):
    return tuple((("h", height), ("w", width)) for height, width in sizes)


def sentence_model(name, title):
    def make(folder):
        from experiments.roofline.models import MODELS as found
        return found[name].make(folder)
    return Model(title, make, sentences(53, 19, 37, 64, 103), {"b": 1})


def image_model(name, title):
    def make(folder):
        from experiments.images import building
        building.export(name)
        return str(building.FOLDER / f"{name}.onnx")
    return Model(title, make, images((224, 224), (161, 237), (320, 256)))


MODELS = {"bert-base": sentence_model("bert-base", "BERT-base"),
          "minilm": sentence_model("minilm", "all-MiniLM-L6-v2"),
          "resnet-50": image_model("resnet-50", "ResNet-50"),
          "mobilenet-v2": image_model("mobilenet-v2", "MobileNet-v2")}
CASES = {f"{model}-{precision}": (model, precision)
         for model in MODELS for precision in PRECISIONS}


def measured_on(features):
    """Returns the cases that a CPU with these features has instructions for."""
    return [case for case, (_, precision) in CASES.items()
            if precision not in INSTRUCTIONS or INSTRUCTIONS[precision] & set(features)]


def title_of(case):
    model, precision = CASES[case]
    return f"{MODELS[model].title}, {precision}"


def shape_text(shape):
    return ", ".join(f"{symbol} = {extent}" for symbol, extent in shape if symbol != "b")
