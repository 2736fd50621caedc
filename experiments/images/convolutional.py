"""Convolutional networks in plain PyTorch, each from its paper; where torchvision's model of the
name has other sizes than the paper, its sizes. Forward takes one image (1, 3, h, w) and returns
(1, 1000)."""

import torch
from torch import nn

from experiments.exporters.models.images import unit

CLASSES = 1000


def head(channels):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def linear_unit(inputs, outputs, kernel=1, stride=1, groups=1):
    """A convolution with its normalisation, without an activation."""
    return unit(inputs, outputs, kernel, stride, groups, nn.Identity)


class Excite(nn.Module):
    """Squeeze and excite (Hu et al., 2018)."""

    def __init__(self, channels, squeezed, activation):
        super().__init__()
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, squeezed, 1),
                                  activation(), nn.Conv2d(squeezed, channels, 1), nn.Sigmoid())

    def forward(self, x):
        return x * self.gate(x)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(unit(inputs, width, 1), unit(width, width, 3, stride),
                                  linear_unit(width, outputs))
        self.short = (nn.Identity() if inputs == outputs and stride == 1
                      else linear_unit(inputs, outputs, 1, stride))

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


class ResNet50(nn.Sequential):
    """He et al., "Deep residual learning", 2016, the stride in the 3 × 3 convolution."""

    def __init__(self):
        layers, channels = [unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
        for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for number in range(depth):
                layers.append(Bottleneck(channels, width, 1 if number else stride))
                channels = 4 * width
        super().__init__(*layers, head(channels))


class Inverted(nn.Module):
    """An inverted bottleneck: expand, depthwise, perhaps squeeze and excite, project."""

    def __init__(self, inputs, outputs, expansion, kernel, stride, activation, excite):
        super().__init__()
        wide = expansion * inputs
        parts = [unit(inputs, wide, 1, activation=activation)] if expansion != 1 else []
        parts.append(unit(wide, wide, kernel, stride, wide, activation))
        if excite:
            parts.append(Excite(wide, inputs // 4, activation))
        self.body = nn.Sequential(*parts, linear_unit(wide, outputs))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.residual else self.body(x)


def inverted(rows, activation, excite):
    """The stem, the blocks of rows (expansion, outputs, depth, stride, kernel), and the head."""
    layers, channels = [unit(3, 32, 3, 2, activation=activation)], 32
    for expansion, outputs, depth, stride, kernel in rows:
        for number in range(depth):
            layers.append(Inverted(channels, outputs, expansion, kernel, 1 if number else stride,
                                   activation, excite))
            channels = outputs
    return [*layers, unit(channels, 1280, 1, activation=activation), head(1280)]


class MobileNetV2(nn.Sequential):
    """Sandler et al., "MobileNetV2", 2018."""

    def __init__(self):
        super().__init__(*inverted(
            ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3),
             (6, 96, 3, 1, 3), (6, 160, 3, 2, 3), (6, 320, 1, 1, 3)), nn.ReLU6, False))


class EfficientNetB0(nn.Sequential):
    """Tan and Le, "EfficientNet", 2019."""

    def __init__(self):
        super().__init__(*inverted(
            ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
             (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)), nn.SiLU, True))


def ahead(inputs, outputs, kernel=1):
    """Normalisation and activation ahead of a convolution."""
    return [nn.BatchNorm2d(inputs), nn.ReLU(),
            nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)]


class DenseLayer(nn.Module):
    GROWTH = 32

    def __init__(self, inputs):
        super().__init__()
        self.body = nn.Sequential(*ahead(inputs, 4 * self.GROWTH),
                                  *ahead(4 * self.GROWTH, self.GROWTH, 3))

    def forward(self, x):
        return torch.cat([x, self.body(x)], 1)


class DenseNet121(nn.Sequential):
    """Huang et al., "Densely connected convolutional networks", 2017."""

    def __init__(self):
        layers, channels = [unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
        for depth in (6, 12, 24, 16):
            if len(layers) > 2:
                layers += [*ahead(channels, channels // 2), nn.AvgPool2d(2)]
                channels //= 2
            for _ in range(depth):
                layers.append(DenseLayer(channels))
                channels += DenseLayer.GROWTH
        super().__init__(*layers, nn.BatchNorm2d(channels), nn.ReLU(), head(channels))


class Inception(nn.Module):
    def __init__(self, inputs, one, three, wide, five, narrow, pooled):
        super().__init__()
        self.branches = nn.ModuleList([
            unit(inputs, one, 1),
            nn.Sequential(unit(inputs, three, 1), unit(three, wide, 3)),
            nn.Sequential(unit(inputs, five, 1), unit(five, narrow, 3)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), unit(inputs, pooled, 1))])

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


class GoogLeNet(nn.Sequential):
    """Szegedy et al., "Going deeper with convolutions", 2015, without auxiliary classifiers; as
    torchvision has it with batch normalisation, and 3 × 3 where the paper has 5 × 5."""

    def __init__(self):
        def pool(kernel=3):
            return nn.MaxPool2d(kernel, 2, ceil_mode=True)
        super().__init__(
            unit(3, 64, 7, 2), pool(), unit(64, 64, 1), unit(64, 192, 3), pool(),
            Inception(192, 64, 96, 128, 16, 32, 32), Inception(256, 128, 128, 192, 32, 96, 64),
            pool(),
            Inception(480, 192, 96, 208, 16, 48, 64), Inception(512, 160, 112, 224, 24, 64, 64),
            Inception(512, 128, 128, 256, 24, 64, 64), Inception(512, 112, 144, 288, 32, 64, 64),
            Inception(528, 256, 160, 320, 32, 128, 128), pool(2),
            Inception(832, 256, 160, 320, 32, 128, 128),
            Inception(832, 384, 192, 384, 48, 128, 128), head(1024))


class Shuffle(nn.Module):
    """ShuffleNet's unit: half of the channels pass by (or, with a stride, through a branch of their
    own); then the halves are interleaved."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        half = outputs // 2
        self.outputs, self.strided = outputs, stride > 1
        if self.strided:
            self.short = nn.Sequential(linear_unit(inputs, inputs, 3, stride, inputs),
                                       unit(inputs, half, 1))
        self.body = nn.Sequential(unit(inputs if self.strided else half, half, 1),
                                  linear_unit(half, half, 3, stride, half), unit(half, half, 1))

    def forward(self, x):
        if self.strided:
            parts = self.short(x), self.body(x)
        else:
            kept, changed = x.chunk(2, 1)
            parts = kept, self.body(changed)
        y = torch.cat(parts, 1)
        height, width = y.shape[2:]
        y = y.view(1, 2, self.outputs // 2, height, width).transpose(1, 2)
        return y.reshape(1, self.outputs, height, width)


class ShuffleNetV2(nn.Sequential):
    """Ma et al., "ShuffleNet V2", 2018, at its width of 1."""

    def __init__(self):
        layers, channels = [unit(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)], 24
        for outputs, depth in ((116, 4), (232, 8), (464, 4)):
            for number in range(depth):
                layers.append(Shuffle(channels, outputs, 1 if number else 2))
                channels = outputs
        super().__init__(*layers, unit(channels, 1024, 1), head(1024))


class RegNetBlock(nn.Module):
    GROUP = 8  # channels

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            unit(inputs, width, 1), unit(width, width, 3, stride, width // self.GROUP),
            Excite(width, inputs // 4, nn.ReLU), linear_unit(width, width))
        self.short = (nn.Identity() if inputs == width and stride == 1
                      else linear_unit(inputs, width, 1, stride))

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


class RegNetY400MF(nn.Sequential):
    """Radosavovic et al., "Designing network design spaces", 2020: 400 million multiply-adds, with
    squeeze and excite."""

    def __init__(self):
        layers, channels = [unit(3, 32, 3, 2)], 32
        for width, depth in ((48, 1), (104, 3), (208, 6), (440, 6)):
            for number in range(depth):
                layers.append(RegNetBlock(channels, width, 1 if number else 2))
                channels = width
        super().__init__(*layers, head(channels))
