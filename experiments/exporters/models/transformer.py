"""Whole transformers: encoder, decoder with a cache, encoder-decoder, transformers' own."""

import torch
from torch import nn

from experiments.exporters.catalogue import (Entry, Input, always, below, floats, keep, padding)


class Encoder(nn.Module):
    """nn.TransformerEncoder over padded rows."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(24, 4, 48, batch_first=True)
        self.net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x, ignored):
        return self.net(x, src_key_padding_mask=ignored)


class EncoderDecoder(nn.Module):
    """nn.Transformer, its decoder masked."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 24)
        self.net = nn.Transformer(24, 4, 1, 2, 48, batch_first=True)
        self.out = nn.Linear(24, 40)

    def forward(self, source, target):
        n = target.size(1)
        ahead = torch.ones(n, n, dtype=torch.bool).triu(1)
        return self.out(self.net(self.words(source), self.words(target), tgt_mask=ahead,
                                 tgt_is_causal=False))


class CachedDecoder(nn.Module):
    """A GPT-2 block stack that takes the keys and values of the steps before, and gives them on."""

    LAYERS, HEADS, WIDTH = 2, 4, 24

    def __init__(self):
        super().__init__()
        width = self.WIDTH
        self.words, self.places = nn.Embedding(40, width), nn.Embedding(128, width)
        self.layers = nn.ModuleList(nn.ModuleDict({
            "norm1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width),
            "out": nn.Linear(width, width), "norm2": nn.LayerNorm(width),
            "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width)})
            for _ in range(self.LAYERS))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, past):
        """ids (b, n), past (layers, 2, b, heads, p, width / heads) -> logits, past of p + n."""
        b, n = ids.shape
        p = past.size(4)
        place = torch.arange(p, p + n)
        x = self.words(ids) + self.places(place)
        ahead = place[:, None] < torch.arange(p + n)[None, :]
        present = []
        for layer, (keys, values) in zip(self.layers, past):
            q, k, v = (t.view(b, n, self.HEADS, -1).transpose(1, 2)
                       for t in layer["qkv"](layer["norm1"](x)).split(self.WIDTH, dim=-1))
            k, v = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
            present.append(torch.stack([k, v]))
            scores = (q @ k.transpose(-1, -2)) * (self.WIDTH // self.HEADS) ** -0.5
            scores = scores.masked_fill(ahead, torch.finfo(scores.dtype).min)
            y = (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(b, n, self.WIDTH)
            x = x + layer["out"](y)
            x = x + layer["down"](nn.functional.gelu(layer["up"](layer["norm2"](x)),
                                                     approximate="tanh"))
        return self.norm(x) @ self.words.weight.T, torch.stack(present)


def quiet():
    import transformers
    transformers.logging.set_verbosity_error()
    return transformers


class Bert(nn.Module):
    """transformers' BertModel."""

    def __init__(self):
        super().__init__()
        t = quiet()
        self.net = t.BertModel(t.BertConfig(
            vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=64, max_position_embeddings=64))

    def forward(self, input_ids, attention_mask):
        out = self.net(input_ids=input_ids, attention_mask=attention_mask)
        return out.last_hidden_state, out.pooler_output


class Gpt2(nn.Module):
    """transformers' GPT2LMHeadModel over a whole padded text."""

    def __init__(self):
        super().__init__()
        t = quiet()
        self.net = t.GPT2LMHeadModel(t.GPT2Config(
            vocab_size=64, n_embd=32, n_layer=2, n_head=2, n_positions=64, use_cache=False,
            bos_token_id=0, eos_token_id=0))

    def forward(self, input_ids, attention_mask):
        return self.net(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


class T5(nn.Module):
    """transformers' T5 encoder: relative positions, RMS norms."""

    def __init__(self):
        super().__init__()
        t = quiet()
        self.net = t.T5EncoderModel(t.T5Config(
            vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
            decoder_start_token_id=0))

    def forward(self, input_ids, attention_mask):
        return self.net(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class VisionTransformer(nn.Module):
    """Patches, a class token, an encoder; positions resampled to the image's size."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 24, 8, stride=8)
        self.token = nn.Parameter(torch.randn(1, 1, 24))
        self.places = nn.Parameter(torch.randn(1, 24, 4, 4))
        self.net = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(24, 4, 48, batch_first=True, norm_first=True), 1,
            enable_nested_tensor=False)

    def forward(self, image):
        x = self.patches(image)
        x = x + nn.functional.interpolate(self.places, size=x.shape[2:], mode="bilinear")
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.size(0), -1, -1), x], dim=1)
        return self.net(x)[:, 0]


def entry(name, make, inputs, sizes, about):
    return Entry(name, "transformer", make, inputs, sizes, about)


BN = {"b": (1, 6), "n": (1, 24)}
IDS = Input("input_ids", ("b", "n"), below(64))
MASK = Input("attention_mask", ("b", "n"), keep)
MODELS = [
    entry("transformer-encoder", always(Encoder),
          [floats("b", "n", 24), Input("ignored", ("b", "n"), padding)], BN,
          "nn.TransformerEncoder over padded rows"),
    entry("transformer", always(EncoderDecoder),
          [Input("source", ("b", "n"), below(40)), Input("target", ("b", "m"), below(40))],
          {**BN, "m": (1, 24)}, "nn.Transformer"),
    entry("decoder-cache", always(CachedDecoder),
          [Input("ids", ("b", "n"), below(40)), floats(2, 2, "b", 4, "p", 6, name="past")],
          {"b": (1, 4), "n": (1, 12), "p": (1, 40)}, "GPT-like with keys and values of the past"),
    entry("bert", always(Bert), [IDS, MASK], BN, "transformers' BertModel"),
    entry("gpt2", always(Gpt2), [IDS, MASK], BN, "transformers' GPT2LMHeadModel"),
    entry("t5-encoder", always(T5), [IDS, MASK], BN, "transformers' T5EncoderModel"),
    entry("vision-transformer", always(VisionTransformer), [floats("b", 3, "h", "w", name="image")],
          {"b": (1, 3), "h": (8, 64, 8), "w": (8, 64, 8)}, "positions resampled to the image"),
]
