"""The image networks, which sizes of images they meet, and what is asked of nimble on each.

Architectures are those that were published, at the sizes of torchvision's models of these names;
weights are drawn (export.py), since times don't depend on them. Nothing here needs torch to be
imported.
"""

import dataclasses
import importlib

OWN = (224, 224)  # height and width that the networks were made for
LOWEST, HIGHEST = 160, 320  # of the heights and widths that are drawn
TRACE_ROWS, TRACE_SEED, MEASURED_SEED = 200, 21, 22
INPUT, CHANNELS = "image", 3
SINGLE, EXACT = "torch", "torch_f64"  # systems whose results others' are compared with
LEAST_MEAN, LEAST_P5 = 1.0, 0.95
MOST_OVER_LIMIT = 1.3  # that a kernel may take, in times of its limit


@dataclasses.dataclass(frozen=True)
class Network:
    title: str
    module: str  # where the class is that makes it
    cls: str
    parameters: int  # so many weights it must have
    least: float = LEAST_MEAN  # the bar: best peer's time over nimble's
    any_size: bool = True  # height and width stay symbolic; otherwise it is of OWN alone


CONVOLUTIONAL, PATCHES = "experiments.images.convolutional", "experiments.images.patches"
STUDY = "experiments.memory_study.models"
# Of one size: VGG's first dense layer, ViT's positions and Swin's windows and masks are laid out
# for it.
NETWORKS = {
    "resnet-50": Network("ResNet-50", CONVOLUTIONAL, "ResNet50", 25_557_032, 1.05),
    "vgg-16": Network("VGG-16", STUDY, "Vgg16", 138_357_544, 1.05, any_size=False),
    "mobilenet-v2": Network("MobileNet-v2", CONVOLUTIONAL, "MobileNetV2", 3_504_872, 1.05),
    "squeezenet": Network("SqueezeNet 1.1", STUDY, "SqueezeNet", 1_235_496, 1.05),
    "densenet-121": Network("DenseNet-121", CONVOLUTIONAL, "DenseNet121", 7_978_856),
    "efficientnet-b0": Network("EfficientNet-B0", CONVOLUTIONAL, "EfficientNetB0", 5_288_548),
    "googlenet": Network("GoogLeNet", CONVOLUTIONAL, "GoogLeNet", 6_624_904),
    "shufflenet-v2": Network("ShuffleNet-v2", CONVOLUTIONAL, "ShuffleNetV2", 2_278_604),
    "regnet-y-400mf": Network("RegNetY-400MF", CONVOLUTIONAL, "RegNetY400MF", 4_344_144),
    "swin-t": Network("Swin-T", PATCHES, "SwinT", 28_288_354, any_size=False),
    "convnext-t": Network("ConvNeXt-T", PATCHES, "ConvNeXtT", 28_589_128),
    "vit-b": Network("ViT-B/16", PATCHES, "ViTB", 86_567_656, any_size=False),
}


def make(name):
    """Returns the torch module of a network, its weights not drawn yet."""
    network = NETWORKS[name]
    return getattr(importlib.import_module(network.module), network.cls)()


def draw_sizes(count, seed, without=()):
    """Returns `count` different (height, width), drawn evenly, none of `without`. Those of a
    smaller count are the first ones of a larger."""
    import numpy as np
    random, found = np.random.default_rng(seed), []
    while len(found) < count:
        size = tuple(int(extent) for extent in random.integers(LOWEST, HIGHEST + 1, 2))
        if size not in found and size not in without:
            found.append(size)
    return found


def tuned_sizes():
    """Returns the sizes that tuning sees: none of those that are measured."""
    return draw_sizes(TRACE_ROWS, TRACE_SEED, (OWN,))


def measured_sizes(count):
    """Returns the sizes that are measured beside OWN."""
    return draw_sizes(count, MEASURED_SEED, (OWN, *tuned_sizes()))


def write_trace(path):
    """Writes the sizes for tuning; returns what `nimble tune --trace` takes."""
    rows = [f"{height}\t{width}\n" for height, width in tuned_sizes()]
    path.write_text("h\tw\n" + "".join(rows), encoding="utf-8")
    return f"{path}:h,w"


def inputs(size, number=0):
    """Returns a drawn image of (height, width), the same bits in every process; each number is
    another image."""
    import numpy as np
    image = np.random.default_rng((*size, number) if number else size).standard_normal((1, CHANNELS, *size))
    return {INPUT: image.astype(np.float32)}
