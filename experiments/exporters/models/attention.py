"""Attention in the forms that PyTorch offers, with the masks that it takes."""

import math

import torch
from torch import nn
from torch.nn import functional

from experiments.exporters.catalogue import Entry, Input, always, bools, floats, padding


class Multihead(nn.Module):
    """nn.MultiheadAttention between two sequences, one of them padded; weights as an output."""

    def __init__(self):
        super().__init__()
        self.net = nn.MultiheadAttention(24, 4, batch_first=True)

    def forward(self, x, memory, ignored):
        return self.net(x, memory, memory, key_padding_mask=ignored)


class Causal(nn.Module):
    """scaled_dot_product_attention that never looks ahead."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(24, 72)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, 6)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).flatten(2)


class Masked(nn.Module):
    """scaled_dot_product_attention with a bool mask, and with an additive one."""

    def forward(self, q, k, v, allowed):
        a = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        bias = torch.where(allowed, 0.0, -1e4)
        b = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.3)
        return a, b


class Hand(nn.Module):
    """Attention between two sequences written out, the padded keys masked: what TorchScript's
    exporter does not tie to the example's lengths, as it does nn.MultiheadAttention."""

    def __init__(self):
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(24, 24), nn.Linear(24, 48), nn.Linear(24, 24)

    def forward(self, x, memory, ignored):
        b, n, _ = x.shape
        m = memory.size(1)
        q = self.q(x).view(b, n, 4, 6).transpose(1, 2)
        k, v = (t.reshape(b, m, 4, 6).transpose(1, 2) for t in self.kv(memory).chunk(2, dim=-1))
        scores = torch.matmul(q, k.transpose(-1, -2)) * 6 ** -0.5
        scores = scores.masked_fill(ignored[:, None, None, :], float("-inf"))
        return self.out(torch.matmul(scores.softmax(-1), v).transpose(1, 2).reshape(b, n, 24))


class Grouped(nn.Module):
    """Eight query heads on two of keys and values, as Llama has them; rotary positions."""

    def __init__(self):
        super().__init__()
        self.q, self.kv = nn.Linear(32, 64), nn.Linear(32, 32)

    @staticmethod
    def rotate(x):
        n, half = x.size(-2), x.size(-1) // 2
        angle = torch.arange(n)[:, None] / 100.0 ** (torch.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q(x).view(b, n, 8, 8).transpose(1, 2)
        k, v = self.kv(x).view(b, n, 2, 2, 8).unbind(3)
        k, v = (t.transpose(1, 2).repeat_interleave(4, dim=1) for t in (k, v))
        q, k = self.rotate(q), self.rotate(k)
        scores = q @ k.transpose(-1, -2) / math.sqrt(8)
        ahead = torch.ones(n, n, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(ahead, float("-inf"))
        return (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(b, n, 64)


class Relative(nn.Module):
    """Attention with T5's buckets of relative positions as a learned bias."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Embedding(16, 4)

    def forward(self, q, k):
        n, m = q.size(2), k.size(2)
        distance = torch.arange(m)[None, :] - torch.arange(n)[:, None]
        far = 4 + (torch.log(distance.abs().clamp(min=1).float() / 4) * 2).long()
        bucket = torch.where(distance.abs() < 4, distance.abs(), far.clamp(max=7))
        bucket = bucket + (distance > 0).long() * 8
        bias = self.bias(bucket).permute(2, 0, 1).unsqueeze(0)
        return torch.softmax(torch.einsum("bhid,bhjd->bhij", q, k) + bias, dim=-1)


def entry(name, make, inputs, sizes, about):
    return Entry(name, "attention", make, inputs, sizes, about)


BN = {"b": (1, 6), "n": (1, 24)}
BNM = {**BN, "m": (1, 24)}
MODELS = [
    entry("multihead", always(Multihead),
          [floats("b", "n", 24), floats("b", "m", 24, name="memory"),
           Input("ignored", ("b", "m"), padding)], BNM,
          "nn.MultiheadAttention with padded keys"),
    entry("cross", always(Hand),
          [floats("b", "n", 24), floats("b", "m", 24, name="memory"),
           Input("ignored", ("b", "m"), padding)], BNM, "attention to padded keys, written out"),
    entry("sdpa-causal", always(Causal), [floats("b", "n", 24)], BN, "is_causal=True"),
    entry("sdpa-masked", always(Masked),
          [floats("b", 3, "n", 8, name="q"), floats("b", 3, "m", 8, name="k"),
           floats("b", 3, "m", 8, name="v"), Input("allowed", ("n", "m"), bools(0.95))], BNM,
          "bool and additive masks"),
    entry("grouped-query", always(Grouped), [floats("b", "n", 32)], BN,
          "shared keys, rotary positions, masked_fill"),
    entry("relative-bias", always(Relative),
          [floats("b", 4, "n", 8, name="q"), floats("b", 4, "m", 8, name="k")], BNM,
          "buckets of relative positions"),
]
