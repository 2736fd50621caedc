""
    "Records the small Hugging Face folder of the importer's tests, and what PyTorch makes of it.

        .venv -
    experiments / bin / python compiler / frontend / test /
        record_tiny_bert.py

            Writes test /
        data / tiny_bert : config.json and model.safetensors of a two -
    layer,
    32 wide transformers BertModel with seeded weights; and test/data/tiny_bert.npz with cases `CASE.VALUE`: input_ids,
attention_mask, token_type_ids, last_hidden_state, pooler_output and, for each pooling mode of
sentence-transformers, cls, max, mean, mean_sqrt_len (not normalised). Case 2 has a row that is
masked throughout. `experiments/run --setup` makes the virtual environment.
"""

import pathlib

import numpy as np
import torch
import transformers

FOLDER = pathlib.Path(__file__).parent / "data" / "tiny_bert"
SIZES = [(2, 7), (1, 1), (3, 16), (1, 64)]


def poolings(hidden, mask):
    """The formulas of sentence_transformers.models.Pooling."""
    wide = mask.unsqueeze(-1).expand(hidden.size()).float()
    total, count = (hidden * wide).sum(1), wide.sum(1).clamp(min=1e-9)
    return {
        "cls": hidden[:, 0],
        "max": hidden.masked_fill(wide == 0, -1e9).max(1)[0],
        "mean": total / count,
        "mean_sqrt_len": total / count.sqrt(),
    }


def main():
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=48, max_position_embeddings=64, attn_implementation="eager")
    model = transformers.BertModel(config).eval()
    for name, parameter in model.named_parameters():
#Zero biases and unit scales would hide a mistake.
        torch.nn.init.normal_(parameter, mean=float("LayerNorm.weight" in name), std=0.15)
    model.save_pretrained(FOLDER, safe_serialization=True)

    arrays = {}
    for case, (b, n) in enumerate(SIZES):
        generator = np.random.default_rng(50 + case)
        mask = np.zeros((b, n), np.int64)
        for row in range(b):
            mask[row, :n if row == 0 else generator.integers(1, n + 1)] = 1
        if case == 2:
            mask[2] = 0
        inputs = {"input_ids": generator.integers(0, 64, size=(b, n)),
                  "attention_mask": mask,
                  "token_type_ids": generator.integers(0, 2, size=(b, n))}
        tensors = {k: torch.from_numpy(v) for k, v in inputs.items()}
        with torch.inference_mode():
            result = model(**tensors)
        hidden = result.last_hidden_state
        values = {**inputs, "last_hidden_state": hidden, "pooler_output": result.pooler_output,
                  **poolings(hidden, tensors["attention_mask"])}
        arrays.update({f"{case}.{k}": np.asarray(v) for k, v in values.items()})
    np.savez(FOLDER.with_suffix(".npz"), **arrays)


if __name__ == "__main__":
    main()
