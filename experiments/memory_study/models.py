"""The models of the memory study: BERT-base, and image networks as files of ONNX.

Architectures and sizes are those that were published, weights are drawn: memory does not depend on
them.
"""

import torch
from torch import nn

from experiments.budget.models import Encoder, transformers
from experiments.exporters import worker
from experiments.exporters.catalogue import Entry, always, floats

SIZE = 224  # of the images


def bert_folder(folder):
    """Makes a Hugging Face folder of BERT-base and returns it."""
    path = folder / "bert-base"
    if not (path / "model.safetensors").exists():
        t = transformers()
        torch.manual_seed(worker.SEED)
        t.BertModel(t.BertConfig(), add_pooling_layer=False).save_pretrained(path)
    return path


def resnet50():
    t = transformers()
    return Encoder(t.ResNetModel(t.ResNetConfig()))


def mobilenet():
    t = transformers()
    return Encoder(t.MobileNetV2Model(t.MobileNetV2Config(tf_padding=False), False))


class Vgg16(nn.Module):
    """Configuration D of Simonyan and Zisserman, "Very deep convolutional networks", 2015."""

    WIDTHS = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)

    def __init__(self):
        super().__init__()
        layers, channels = [], 3
        for width in self.WIDTHS:
            if width == 0:
                layers.append(nn.MaxPool2d(2, 2))
                continue
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
            nn.Linear(4096, 1000))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class Fire(nn.Module):
    def __init__(self, channels, squeeze, expand):
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeeze, 1)
        self.narrow = nn.Conv2d(squeeze, expand, 1)
        self.wide = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x):
        x = self.squeeze(x).relu()
        return torch.cat([self.narrow(x).relu(), self.wide(x).relu()], 1)


class SqueezeNet(nn.Module):
    """Version 1.1 of Iandola et al., "SqueezeNet", 2016."""

    def __init__(self):
        super().__init__()
        def pool():
            return nn.MaxPool2d(3, 2)
        self.net = nn.Sequential(
            nn.Conv2d(3, 64, 3, stride=2), nn.ReLU(), pool(),
            Fire(64, 16, 64), Fire(128, 16, 64), pool(),
            Fire(128, 32, 128), Fire(256, 32, 128), pool(),
            Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256),
            nn.Conv2d(512, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))

    def forward(self, x):
        return self.net(x).flatten(1)


def entry(name, make, dims, sizes):
    return Entry(name, "memory", always(make), [floats(*dims, name="image")], sizes, name)


ANY_SIZE = {"h": (64, 256), "w": (64, 256)}
# Name → what is dynamic, and the extents at which the footprint is taken. VGG's last layers take
# images of one size only.
IMAGES = {
    "ResNet-50": (entry("resnet-50", resnet50, (1, 3, "h", "w"), ANY_SIZE),
                  {"h": SIZE, "w": SIZE}),
    "MobileNetV2": (entry("mobilenet-v2", mobilenet, (1, 3, "h", "w"), ANY_SIZE),
                    {"h": SIZE, "w": SIZE}),
    "VGG-16": (entry("vgg-16", Vgg16, ("b", 3, SIZE, SIZE), {"b": (1, 4)}), {"b": 1}),
    "SqueezeNet 1.1": (entry("squeezenet", SqueezeNet, (1, 3, "h", "w"), ANY_SIZE),
                       {"h": SIZE, "w": SIZE}),
}


def export(entry, folder):
    """Writes the ONNX file unless it is there, and returns it."""
    path = folder / f"{entry.name}.onnx"
    worker.export_once(entry, path)
    return path
