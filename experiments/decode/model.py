"""The decoder in PyTorch, and one step of it as ONNX with the names that exporters use.

    python -m experiments.decode.model tiny decoder.onnx

Inputs: input_ids (1, n) i64, attention_mask (1, past + n) i64, position_ids (1, n) i64,
past_key_values.I.key and .value (1, heads, past, d) f32; outputs: logits (1, n, vocabulary) and
present.I.key and .value (1, heads, past + n, d).
"""

import sys

import torch

from experiments.decode.weights import CONFIGS, weights


class Block(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        w = config.width
        self.heads = config.heads
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(w), torch.nn.LayerNorm(w)
        self.attn = torch.nn.ModuleDict({"c_attn": torch.nn.Linear(w, 3 * w),
                                         "c_proj": torch.nn.Linear(w, w)})
        self.mlp = torch.nn.ModuleDict({"c_fc": torch.nn.Linear(w, 4 * w),
                                        "c_proj": torch.nn.Linear(4 * w, w)})

    def forward(self, x, mask, past):
        b, n, w = x.shape
        q, k, v = (part.view(b, n, self.heads, w // self.heads).transpose(1, 2)
                   for part in self.attn["c_attn"](self.ln_1(x)).split(w, dim=2))
        k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        scores = q @ k.transpose(-1, -2) / (w // self.heads) ** 0.5
        seen = torch.softmax(scores + mask, dim=-1) @ v
        x = x + self.attn["c_proj"](seen.transpose(1, 2).reshape(b, n, w))
        hidden = torch.nn.functional.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](hidden), (k, v)


class Decoder(torch.nn.Module):
    """forward(input_ids, attention_mask, position_ids, key 0, value 0, …) → (logits, …)."""

    def __init__(self, config):
        super().__init__()
        self.wte = torch.nn.Embedding(config.vocabulary, config.width)
        self.wpe = torch.nn.Embedding(config.context, config.width)
        self.h = torch.nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = torch.nn.LayerNorm(config.width)
        with torch.no_grad():
            for name, value in weights(config).items():
                # GPT-2 keeps its matrices as (inputs, outputs), Linear as (outputs, inputs).
                value = torch.from_numpy(value)
                matrix = name.startswith("h.") and value.dim() == 2
                self.get_parameter(name).copy_(value.T if matrix else value)

    def forward(self, input_ids, attention_mask, position_ids, *past):
        x = self.wte(input_ids) + self.wpe(position_ids)
        n = input_ids.shape[1]
        total = attention_mask.shape[1]
        column = torch.arange(total)
        row = torch.arange(total - n, total)
        allowed = (column[None, :] <= row[:, None])[None, None] & (
            attention_mask[:, None, None, :] > 0)
        mask = torch.where(allowed, 0.0, torch.finfo(torch.float32).min)
        present = []
        for i, block in enumerate(self.h):
            x, grown = block(x, mask, past[2 * i:2 * i + 2])
            present += grown
        return torch.nn.functional.linear(self.ln_f(x), self.wte.weight), *present


def make_module(config):
    return Decoder(config).eval()


def state_names(config):
    """Returns the names of the states: as inputs, as outputs."""
    parts = [f"{i}.{part}" for i in range(config.layers) for part in ("key", "value")]
    return [f"past_key_values.{part}" for part in parts], [f"present.{part}" for part in parts]


def export(config, path, dynamo=True):
    """Writes the step with symbolic n and past, weights inside (dynamo: torch.onnx's newer exporter,
    else the one by tracing)."""
    past_shape = (1, config.heads, 3, config.width // config.heads)
    before, after = state_names(config)
    arguments = (torch.zeros(1, 2, dtype=torch.int64), torch.ones(1, 5, dtype=torch.int64),
                 torch.zeros(1, 2, dtype=torch.int64), *(torch.zeros(past_shape) for _ in before))
    names = ["input_ids", "attention_mask", "position_ids", *before]
    kwargs = {"input_names": names, "output_names": ["logits", *after], "verbose": False}
    if dynamo:
        n, m = torch.export.Dim("n", min=1), torch.export.Dim("past", min=0)
        kwargs["dynamic_shapes"] = ({1: n}, {1: torch.export.Dim.AUTO}, {1: n},
                                    tuple({2: m} for _ in before))
        kwargs["external_data"] = False
    else:
        kwargs["dynamic_axes"] = {"input_ids": {1: "n"}, "attention_mask": {1: "total"},
                                  "position_ids": {1: "n"}, **{name: {2: "past"} for name in before}}
        kwargs["opset_version"] = 17
    torch.onnx.export(make_module(config), arguments, str(path), dynamo=dynamo, **kwargs)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in CONFIGS:
        sys.exit(f"python -m experiments.decode.model {'|'.join(CONFIGS)} FILE.onnx")
    export(CONFIGS[sys.argv[1]], sys.argv[2])
