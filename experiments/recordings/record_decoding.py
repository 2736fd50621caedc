"""Writes the decoding programs of the tests and what they must return.

    .venv-experiments/bin/python experiments/recordings/record_decoding.py

Into compiler/driver/test/data: decode_KIND.nir with its side file for the smallest configuration, and
decoding.npz with the sequences that plain numpy finds for several prompts, arrays CASE.NAME.
"""

import io
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments.decode import text_ir, weights  # noqa: E402  (found through the line above)
from experiments.decode.plain import Decoder  # noqa: E402

OUTPUT = ROOT / "compiler" / "emit" / "test" / "data"
TEMPERATURE = np.float32(0.8)
# (prompt, max_new)
CASES = ((1, 0), (1, 1), (1, 40), (2, 45), (3, 6), (5, 17), (7, 16), (16, 17), (23, 4), (24, 3))


def padded(paths, end):
    """The sequences as one matrix, each filled up with its end token."""
    length = max(map(len, paths))
    return np.array([path + [end] * (length - len(path)) for path in paths], np.int64)


def record(config):
    decoder = Decoder(config, weights.weights(config))
    arrays = {}
    for case, (n, max_new) in enumerate(CASES):
        ids, uniform = weights.prompt(config, n), weights.draws(max_new)
        paths, scores = decoder.beam(ids, max_new, text_ir.BEAMS)
        if len(paths) == 1:  # nothing was asked for
            paths, scores = paths * text_ir.BEAMS, np.zeros(text_ir.BEAMS)
        arrays |= {
            f"{case}.input_ids": ids, f"{case}.max_new": np.int64(max_new),
            f"{case}.temperature": TEMPERATURE, f"{case}.uniform": uniform,
            f"{case}.greedy": decoder.greedy(ids, max_new),
            f"{case}.sample": decoder.sample(ids, max_new, TEMPERATURE, uniform, text_ir.TOP_K),
            f"{case}.beam": padded(paths, config.end),
            f"{case}.scores": scores.astype(np.float32)}
    return arrays


def main():
    config = weights.CONFIGS["micro"]
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for kind in text_ir.SIGNATURES:
        text_ir.save(OUTPUT / f"decode_{kind}.nir", config, kind)
    buffer = io.BytesIO()
    np.savez(buffer, **record(config))
    (OUTPUT / "decoding.npz").write_bytes(buffer.getvalue())


if __name__ == "__main__":
    main()
