"""Weights and inputs of the lstm experiment, from a seed, with numpy alone.

    python experiments/lstm/weights.py lstm.nir.safetensors [LAYERS]     for a text IR model

Element i of stream s is a uniform number of [-1, 1): the top 24 bits of output number s·2^32 + i of
SplitMix64 started at 0 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
OOPSLA 2014). Every element is made by itself, in exact integer arithmetic, so C++ tests rebuild the
same bits in a few lines and no framework's generator is part of a recorded result.
"""

import json
import pathlib
import sys

import numpy as np

INPUT, HIDDEN = 300, 512
# Stream numbers; a new tensor takes a new number.
SEEDS = {"weight_ih": 1, "weight_hh": 2, "bias_ih": 3, "bias_hh": 4, "x": 5,
         "weight_ih_l1": 6, "weight_hh_l1": 7, "bias_ih_l1": 8, "bias_hh_l1": 9}


def uniform(seed, shape):
    """Returns float32 numbers of [-1, 1), 24 random bits each, row-major over `shape`."""
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        z = np.uint64(seed << 32) + np.arange(count, dtype=np.uint64)
        z = z * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(40)).astype(np.float64) / 2**23 - 1).astype(np.float32).reshape(shape)


def weights(layers=1):
    """Returns PyTorch's four LSTM tensors of each layer: weight_ih (4h, i), weight_hh (4h, h),
    biases (4h); gates in the order input, forget, cell, output; names of the second layer end with
    _l1. Scaled by 1/sqrt(h), PyTorch's default."""
    scale = np.float32(1 / np.sqrt(HIDDEN))
    shapes = {}
    for layer in range(layers):
        end, inputs = ("_l1", HIDDEN) if layer else ("", INPUT)
        shapes |= {f"weight_ih{end}": (4 * HIDDEN, inputs), f"weight_hh{end}": (4 * HIDDEN, HIDDEN),
                   f"bias_ih{end}": (4 * HIDDEN,), f"bias_hh{end}": (4 * HIDDEN,)}
    return {name: uniform(SEEDS[name], shape) * scale for name, shape in shapes.items()}


def by_layer(layers):
    """Returns the four tensors of each layer in a tuple."""
    values = list(weights(layers).values())
    return [tuple(values[start:start + 4]) for start in range(0, len(values), 4)]


def sequence(length):
    """Returns the input x (length, 1, 300); a shorter sequence is a prefix of a longer one."""
    return uniform(SEEDS["x"], (length, 1, INPUT))


def save_safetensors(path, layers=1):
    """Writes weights() in the safetensors format."""
    write_safetensors(path, weights(layers))


def write_safetensors(path, tensors):
    """Writes {name: f32 array}: header length, JSON header, raw little-endian numbers."""
    header, blobs, offset = {}, [], 0
    for name, value in tensors.items():
        blobs.append(np.ascontiguousarray(value, "<f4").tobytes())
        header[name] = {"dtype": "F32", "shape": list(value.shape),
                        "data_offsets": [offset, offset + len(blobs[-1])]}
        offset += len(blobs[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.splitlines()[2].strip())
    save_safetensors(sys.argv[1], *map(int, sys.argv[2:]))
