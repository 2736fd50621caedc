"""The models whose products and convolutions a vendor's library competes for, each in f32 and bf16."""

import dataclasses
from collections.abc import Callable

PRECISIONS = {"f32": (), "bf16": ("--precision", "bf16")}
PAIRS = "experiments/workloads/mrpc-token-lengths.tsv:pair"


@dataclasses.dataclass(frozen=True)
class Model:
    title: str
    make: Callable  # (folder) → model argument of `nimble`
    sizes: Callable  # (folder) → what `nimble tune` is told of sizes
    shapes: tuple  # what it is run at: ((symbol, extent), …) each


def sentences(*lengths):
    return tuple((("b", 1), ("n", length)) for length in lengths)


def images(*sizes):
    return tuple((("h", height), ("w", width)) for height, width in sizes)


def sentence_model(name, title):
    def make(folder):
        from experiments.roofline.models import MODELS as found
        return found[name].make(folder)
    return Model(title, make, lambda folder: ["--fix", "b=1", "--trace", PAIRS],
                 sentences(53, 19, 37, 64, 103))


def image_model(name, title):
    def make(folder):
        from experiments.images import building
        building.export(name)
        return str(building.FOLDER / f"{name}.onnx")

    def sizes(folder):
        from experiments.images import networks
        return ["--trace", networks.write_trace(folder / "tuned-sizes.tsv")]
    return Model(title, make, sizes, images((224, 224), (161, 237), (320, 256)))


MODELS = {"bert-base": sentence_model("bert-base", "BERT-base"),
          "minilm": sentence_model("minilm", "all-MiniLM-L6-v2"),
          "resnet-50": image_model("resnet-50", "ResNet-50"),
          "mobilenet-v2": image_model("mobilenet-v2", "MobileNet-v2")}
CASES = {f"{model}-{precision}": (model, precision)
         for model in MODELS for precision in PRECISIONS}


def title_of(case):
    model, precision = CASES[case]
    return f"{MODELS[model].title}, {precision}"


def shape_text(shape):
    return ", ".join(f"{symbol} = {extent}" for symbol, extent in shape if symbol != "b")
