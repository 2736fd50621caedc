"""BERT-base for TVM: a plain PyTorch module through torch.export and Relax's importer.

Hugging Face's module gets through neither of TVM's importers with a symbolic length (ONNX: a
scalar ConstantOfShape; torch.export: the slice of the position ids, min(n, 512) long), so the same
network is written out here.
"""

import torch
import torch.nn.functional as functional

from experiments.bert_base import weights


class PlainBert(torch.nn.Module):
    """input_ids, attention_mask and token_type_ids (1, n) i64 → last_hidden_state (1, n, 768)."""

    def __init__(self):
        super().__init__()
        self.names = {}
        for name, value in weights.weights().items():
            self.names[name] = name.replace(".", "_")
            self.register_buffer(self.names[name], torch.from_numpy(value))

    def value(self, name):
        return self.get_buffer(self.names[name])

    def dense(self, x, name):
        return functional.linear(x, self.value(f"{name}.weight"), self.value(f"{name}.bias"))

    def normalise(self, x, name):
        return functional.layer_norm(x, (weights.WIDTH,), self.value(f"{name}.weight"),
                                     self.value(f"{name}.bias"), weights.EPSILON)

    def forward(self, input_ids, attention_mask, token_type_ids):
        n = input_ids.shape[1]
        embedding = functional.embedding
        x = (embedding(input_ids, self.value("embeddings.word_embeddings.weight"))
             + embedding(token_type_ids, self.value("embeddings.token_type_embeddings.weight"))
             + embedding(torch.arange(n)[None],
                         self.value("embeddings.position_embeddings.weight")))
        x = self.normalise(x, "embeddings.LayerNorm")
        lowest = torch.finfo(torch.float32).min
        mask = (1 - attention_mask.to(torch.float32))[:, None, None] * lowest
        for index in range(weights.LAYERS):
            layer = f"encoder.layer.{index}"
            q, k, v = (
                self.dense(x, f"{layer}.attention.self.{part}").reshape(
                    1, n, weights.HEADS, weights.WIDTH // weights.HEADS).transpose(1, 2)
                for part in ("query", "key", "value"))
            scores = q @ k.transpose(2, 3) * (weights.WIDTH // weights.HEADS) ** -0.5 + mask
            seen = (scores.softmax(-1) @ v).transpose(1, 2).reshape(1, n, weights.WIDTH)
            x = self.normalise(x + self.dense(seen, f"{layer}.attention.output.dense"),
                               f"{layer}.attention.output.LayerNorm")
            inner = functional.gelu(self.dense(x, f"{layer}.intermediate.dense"))
            x = self.normalise(x + self.dense(inner, f"{layer}.output.dense"),
                               f"{layer}.output.LayerNorm")
        return x


def make_module():
    """Returns a Relax module whose `main` takes the inputs in their order."""
    from tvm.relax.frontend.torch import from_exported_program
    example = {name: torch.from_numpy(array) for name, array in weights.inputs(20).items()}
    length = torch.export.Dim("n", min=2, max=weights.POSITIONS)
    with torch.no_grad():
        program = torch.export.export(
            PlainBert().eval(), tuple(example.values()),
            dynamic_shapes=tuple({1: length} for _ in example))
    return from_exported_program(program, unwrap_unit_return_tuple=True)
