"""Configurations, seeded weights and prompts of a GPT-2-like decoder, with numpy alone.

Learned positions, layer norm ahead of attention and of the feed-forward part, GELU by tanh, the
head tied to the embedding: the layers and the names are GPT-2's, whose matrices are (inputs,
outputs). No checkpoint is fetched; the numbers come from the
generator of experiments/lstm/weights.py, scaled so that the logits spread enough to differ.
"""

import dataclasses

import numpy as np

from experiments.lstm.weights import uniform


@dataclasses.dataclass(frozen=True)
class Config:
    layers: int
    heads: int
    width: int  # heads times the width of one
    vocabulary: int
    context: int  # positions

    @property
    def end(self):
        """The token that ends a sequence: the last, as in GPT-2."""
        return self.vocabulary - 1


CONFIGS = {
    "micro": Config(layers=2, heads=2, width=8, vocabulary=13, context=24),
    "tiny": Config(layers=2, heads=2, width=16, vocabulary=61, context=40),
    "small": Config(layers=6, heads=6, width=384, vocabulary=8000, context=1088),
    "gpt2": Config(layers=12, heads=12, width=768, vocabulary=50257, context=1088),
}


def weights(config):
    """Returns {name: f32 array} of the model."""
    w, shapes = config.width, {}
    shapes["wte.weight"] = (config.vocabulary, w)
    shapes["wpe.weight"] = (config.context, w)
    for i in range(config.layers):
        for norm in ("ln_1", "ln_2"):
            shapes[f"h.{i}.{norm}.weight"] = shapes[f"h.{i}.{norm}.bias"] = (w,)
        for name, inputs, outputs in (("attn.c_attn", w, 3 * w), ("attn.c_proj", w, w),
                                      ("mlp.c_fc", w, 4 * w), ("mlp.c_proj", 4 * w, w)):
            shapes[f"h.{i}.{name}.weight"] = (inputs, outputs)
            shapes[f"h.{i}.{name}.bias"] = (outputs,)
    shapes["ln_f.weight"] = shapes["ln_f.bias"] = (w,)
    out = {}
    for seed, (name, shape) in enumerate(shapes.items(), start=100):
        value = uniform(seed, shape)
        if ".ln_" in name or name.startswith("ln_"):
            value = value * np.float32(0.1) + np.float32(name.endswith("weight"))
        elif len(shape) == 2 and name[0] == "h":
            value = value * np.float32(np.sqrt(3 / shape[0]))
        elif name.startswith("wpe"):
            value = value * np.float32(4)  # else one token follows itself for ever
        out[name] = value.astype(np.float32)
    return out


def prompt(config, length):
    """Returns the input_ids of a prompt, (length) i64; a shorter one begins a longer one."""
    draw = (uniform(99, (length,)).astype(np.float64) + 1) / 2
    return np.minimum(draw * config.end, config.end - 1).astype(np.int64)


def draws(length):
    """Returns uniform numbers of [0, 1) for sampling, (length) f32."""
    return (uniform(98, (length,)) + np.float32(1)) / np.float32(2)

