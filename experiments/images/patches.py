"""Networks that begin by cutting the image into patches, in plain PyTorch, each from its paper.
Forward takes one image (1, 3, h, w) and returns (1, 1000)."""

import torch
from torch import nn
from torch.nn import functional

from experiments.images.convolutional import CLASSES
from experiments.images.networks import OWN

EPSILON = 1e-6


class ChannelNorm(nn.LayerNorm):
    """Layer normalisation over the channels of (b, c, h, w)."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.mix = nn.Sequential(nn.LayerNorm(width, EPSILON), nn.Linear(width, 4 * width),
                                 nn.GELU(), nn.Linear(4 * width, width))
        self.scale = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        y = self.scale * self.mix(self.depthwise(x).permute(0, 2, 3, 1))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXtT(nn.Sequential):
    """Liu et al., "A ConvNet for the 2020s", 2022."""

    def __init__(self):
        layers, channels = [], 3
        for width, depth in ((96, 3), (192, 3), (384, 9), (768, 3)):
            layers += ([ChannelNorm(channels, EPSILON), nn.Conv2d(channels, width, 2, 2)] if layers
                       else [nn.Conv2d(3, width, 4, 4), ChannelNorm(width, EPSILON)])
            layers += [ConvNeXtBlock(width) for _ in range(depth)]
            channels = width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), ChannelNorm(channels, EPSILON),
                         nn.Flatten(), nn.Linear(channels, CLASSES))


class Attention(nn.Module):
    """Self-attention over rows (b, n, width), with what is added to the scores or None."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, added=None):
        b, n, width = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=added)
        return self.out(y.transpose(1, 2).reshape(b, n, width))


def multilayer(width):
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class EncoderBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width, EPSILON) for _ in range(2)])
        self.attention, self.mlp = Attention(width, heads), multilayer(width)

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class ViTB(nn.Module):
    """Dosovitskiy et al., "An image is worth 16x16 words", 2021: the base model."""

    PATCH, WIDTH, DEPTH, HEADS = 16, 768, 12, 12

    def __init__(self):
        super().__init__()
        positions = 1 + (OWN[0] // self.PATCH) * (OWN[1] // self.PATCH)
        self.patches = nn.Conv2d(3, self.WIDTH, self.PATCH, self.PATCH)
        self.first = nn.Parameter(torch.zeros(1, 1, self.WIDTH))
        self.positions = nn.Parameter(torch.zeros(1, positions, self.WIDTH))
        self.body = nn.Sequential(*(EncoderBlock(self.WIDTH, self.HEADS)
                                    for _ in range(self.DEPTH)), nn.LayerNorm(self.WIDTH, EPSILON))
        self.head = nn.Linear(self.WIDTH, CLASSES)

    def forward(self, image):
        rows = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.first, rows], 1) + self.positions
        return self.head(self.body(x)[:, 0])


class SwinBlock(nn.Module):
    """Attention in windows of WINDOW × WINDOW over (1, side, side, width), shifted or not."""

    WINDOW = 7

    def __init__(self, width, heads, side, shifted):
        super().__init__()
        w = self.WINDOW
        # One window that holds all needs no shift.
        self.side, self.shift = side, w // 2 if shifted and side > w else 0
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.attention, self.mlp = Attention(width, heads), multilayer(width)
        self.bias = nn.Parameter(torch.zeros((2 * w - 1) ** 2, heads))
        place = torch.cartesian_prod(torch.arange(w), torch.arange(w))
        apart = place[:, None] - place[None, :] + w - 1  # (w², w², 2)
        self.register_buffer("index", apart[..., 0] * (2 * w - 1) + apart[..., 1])
        if self.shift:
            self.register_buffer("mask", self.make_mask())

    def windows(self, x):
        """(1, side, side, c) → (windows, w², c)."""
        w, count, channels = self.WINDOW, self.side // self.WINDOW, x.shape[-1]
        return (x.reshape(count, w, count, w, channels).transpose(1, 2)
                .reshape(count * count, w * w, channels))

    def make_mask(self):
        """Returns (windows, 1, w², w²): -100 where the shift has put two places side by side that
        are not."""
        band = torch.zeros(self.side)
        band[-self.WINDOW:] += 1
        band[-self.shift:] += 1
        region = self.windows((3 * band[:, None] + band[None, :])[None, :, :, None]).squeeze(-1)
        return -100.0 * (region[:, :, None] != region[:, None, :]).float()[:, None]

    def forward(self, x):
        w, count, channels = self.WINDOW, self.side // self.WINDOW, x.shape[-1]
        y = self.norms[0](x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        added = self.bias[self.index].permute(2, 0, 1)[None]
        if self.shift:
            added = added + self.mask
        y = self.attention(self.windows(y), added)
        y = (y.reshape(count, count, w, w, channels).transpose(1, 2)
             .reshape(1, self.side, self.side, channels))
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norms[1](x))


class Merge(nn.Module):
    """Four neighbours side by side, then to twice the width."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduce = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x):
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.reduce(self.norm(x))


class SwinT(nn.Module):
    """Liu et al., "Swin Transformer", 2021: the tiny model."""

    def __init__(self):
        super().__init__()
        width, side = 96, OWN[0] // 4
        self.patches, self.norm = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)
        blocks = []
        for depth, heads in ((2, 3), (2, 6), (6, 12), (2, 24)):
            if blocks:
                blocks.append(Merge(width))
                width, side = 2 * width, side // 2
            blocks += [SwinBlock(width, heads, side, number % 2 == 1) for number in range(depth)]
        self.body = nn.Sequential(*blocks, nn.LayerNorm(width))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, image):
        x = self.norm(self.patches(image).permute(0, 2, 3, 1))
        return self.head(self.body(x).mean((1, 2)))
