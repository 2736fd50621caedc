"""Images of any size: convolutions, poolings, resampling, normalisation by channel."""

import torch
from torch import nn
from torch.nn import functional

from experiments.exporters.catalogue import Entry, Input, always, floats, uniform


def unit(inputs, outputs, kernel=3, stride=1, groups=1, activation=nn.ReLU):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups,
                                   bias=False), nn.BatchNorm2d(outputs), activation())


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.body = nn.Sequential(unit(inputs, width, 1), unit(width, width, 3, stride),
                                  unit(width, 2 * width, 1, activation=nn.Identity))
        self.short = unit(inputs, 2 * width, 1, stride, activation=nn.Identity)

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(unit(3, 8, 7, 2), nn.MaxPool2d(3, 2, 1), Bottleneck(8, 8, 1),
                                 Bottleneck(16, 12, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                 nn.Linear(24, 10))

    def forward(self, image):
        return self.net(image)


class Inverted(nn.Module):
    """MobileNetV3's block: expand, depthwise, squeeze and excite, project."""

    def __init__(self, width, stride):
        super().__init__()
        self.expand = unit(width, 3 * width, 1, activation=nn.Hardswish)
        self.depth = unit(3 * width, 3 * width, 3, stride, groups=3 * width,
                          activation=nn.Hardswish)
        self.excite = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3 * width, 4, 1), nn.ReLU(),
                                    nn.Conv2d(4, 3 * width, 1), nn.Hardsigmoid())
        self.project = unit(3 * width, width, 1, activation=nn.Identity)
        self.residual = stride == 1

    def forward(self, x):
        y = self.depth(self.expand(x))
        y = self.project(y * self.excite(y))
        return x + y if self.residual else y


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(unit(3, 8, 3, 2, activation=nn.ReLU6), Inverted(8, 1),
                                 Inverted(8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                 nn.Linear(8, 10))

    def forward(self, image):
        return self.net(image)


class UNet(nn.Module):
    """Down and up again; what comes up is resized to what it joins, whatever the image's size."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([unit(3, 8), unit(8, 12), unit(12, 16)])
        self.up = nn.ModuleList([unit(28, 12), unit(20, 8)])
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, image):
        a = self.down[0](image)
        b = self.down[1](functional.max_pool2d(a, 2))
        x = self.down[2](functional.max_pool2d(b, 2))
        for layer, skip in zip(self.up, (b, a)):
            x = functional.interpolate(x, size=skip.shape[2:], mode="bilinear", align_corners=False)
            x = layer(torch.cat([x, skip], dim=1))
        return self.head(x)


class Upsampler(nn.Module):
    """Transposed convolution, pixel shuffle, both with their inverses."""

    def __init__(self):
        super().__init__()
        self.grow = nn.ConvTranspose2d(3, 8, 4, stride=2, padding=1, output_padding=1)
        self.mix = nn.Conv2d(8, 12, 3, padding=1, padding_mode="reflect")

    def forward(self, image):
        y = functional.pixel_shuffle(self.mix(functional.leaky_relu(self.grow(image), 0.2)), 2)
        return y, functional.pixel_unshuffle(y, 2)


class Resizer(nn.Module):
    """Every mode of interpolate, to sizes and by factors."""

    def forward(self, image):
        h, w = image.shape[2:]
        return (functional.interpolate(image, scale_factor=2.0, mode="nearest"),
                functional.interpolate(image, size=(h + 3, w * 2), mode="bilinear",
                                       align_corners=True),
                functional.interpolate(image, size=(2 * h, 5), mode="bicubic"),
                functional.adaptive_avg_pool2d(image, 1))


class Warp(nn.Module):
    """A spatial transformer: the image along an affine grid."""

    def forward(self, image, theta):
        b, c, h, w = image.shape
        y = torch.linspace(-1, 1, 9).view(9, 1).expand(9, 11)
        x = torch.linspace(-1, 1, 11).view(1, 11).expand(9, 11)
        base = torch.stack([x, y, torch.ones_like(x)], dim=-1)
        grid = torch.einsum("hwk,bjk->bhwj", base, theta)
        return (functional.grid_sample(image, grid, align_corners=False),
                functional.grid_sample(image, grid, mode="nearest", padding_mode="border",
                                       align_corners=True))


class Norms(nn.Module):
    """The normalisations by group, instance and local response, and what goes with them."""

    def __init__(self):
        super().__init__()
        self.group, self.instance = nn.GroupNorm(4, 8), nn.InstanceNorm2d(8, affine=True)
        self.local, self.prelu = nn.LocalResponseNorm(5), nn.PReLU(8)
        nn.init.normal_(self.group.weight)

    def forward(self, x):
        y = self.local(self.prelu(self.instance(self.group(x))))
        return functional.normalize(y, dim=1), functional.softmax(y.flatten(2), dim=-1)


class Pyramid(nn.Module):
    """Poolings of every kind, dilated and grouped convolutions, joined."""

    def __init__(self):
        super().__init__()
        self.dilated = nn.Conv2d(4, 8, 3, padding=4, dilation=4)
        self.grouped = nn.Conv2d(4, 8, 3, padding=1, groups=2)

    def forward(self, x):
        y = torch.cat([functional.silu(self.dilated(x)), functional.elu(self.grouped(x))], dim=1)
        return (functional.avg_pool2d(y, 3, 2, 1, ceil_mode=True, count_include_pad=False),
                functional.max_pool2d(y, (3, 2), (2, 1), ceil_mode=True),
                functional.lp_pool2d(y.abs() + 0.1, 2.0, 2), y.amax((2, 3)), y.std((2, 3)))


class Patches(nn.Module):
    """unfold and fold, roll as shifted windows have it, flip."""

    def forward(self, x):
        b, c, h, w = x.shape
        windows = torch.roll(x, (-2, -2), (2, 3)).view(b, c, h // 4, 4, w // 4, 4)
        windows = windows.permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, c)
        return windows, functional.unfold(x, 3, padding=1, stride=2), x.flip(3)


def entry(name, make, inputs, sizes, about):
    return Entry(name, "images", make, inputs, sizes, about)


BHW = {"b": (1, 3), "h": (16, 70), "w": (16, 70)}
IMAGE = floats("b", 3, "h", "w", name="image")
MODELS = [
    entry("resnet", always(ResNet), [IMAGE], BHW, "bottlenecks, any size"),
    entry("mobilenet", always(MobileNet), [IMAGE], BHW, "depthwise, squeeze and excite"),
    entry("unet", always(UNet), [IMAGE], BHW, "resized to what it joins"),
    entry("upsampler", always(Upsampler), [IMAGE], {**BHW, "h": (4, 20), "w": (4, 20)},
          "transposed convolution, pixel shuffle"),
    entry("resizer", always(Resizer), [IMAGE], {**BHW, "h": (4, 20), "w": (4, 20)},
          "modes of interpolate"),
    entry("warp", always(Warp), [IMAGE, Input("theta", ("b", 2, 3), uniform)], BHW, "grid_sample"),
    entry("norms", always(Norms), [floats("b", 8, "h", "w")], {**BHW, "h": (2, 20), "w": (2, 20)},
          "group, instance, local response"),
    entry("pyramid", always(Pyramid), [floats("b", 4, "h", "w")],
          {**BHW, "h": (6, 30), "w": (6, 30)}, "poolings, dilation, groups"),
    entry("patches", always(Patches), [floats("b", 2, "h", "w")],
          {"b": (1, 3), "h": (8, 32, 4), "w": (8, 32, 4)}, "shifted windows, unfold"),
]
