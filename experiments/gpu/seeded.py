"""Files whose drawn weights are left out, to be drawn again where they are unpacked.

A compiled BERT-base is 340 MB, nearly all of it weights that experiments draw from a seed
(bert_base/weights.py). encode() finds their rows in the file, as they were drawn or in one of the
forms that a compiler gives them, and leaves instructions; decode() follows them where the same
weights have been drawn, and compares the whole with its hash.
"""

import hashlib
import json
import zlib

import numpy as np

ALIGNMENT = 64  # of constants in a file
KEY_BYTES = 16  # by which a row is found
SCALES = (1.0, 0.125)  # one over the root of a head's width of 64 goes into the queries' weights


def to_bf16(array):
    """Rounds f32 to the upper half of its bits, to nearest, ties to even."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def forms(weights):
    """Yields (key, array) of each form that a weight may have in a file: rows of bytes."""
    for name, value in weights.items():
        matrix = value.reshape(-1, value.shape[-1]) if value.ndim > 1 else value.reshape(1, -1)
        sides = [("", matrix)] + ([("T", matrix.T)] if value.ndim > 1 else [])
        for side, array in sides:
            for scale in SCALES:
                scaled = np.ascontiguousarray(array * np.float32(scale), "<f4")
                yield f"{name}|{side}|{scale}|f32", scaled
                yield f"{name}|{side}|{scale}|bf16", to_bf16(scaled)


def encode(data, weights):
    """Returns (recipe, rest): JSON text, and the bytes that no weight explains."""
    table, starts = {}, {}
    for key, array in forms(weights):
        row_bytes = array.shape[1] * array.itemsize
        if row_bytes < 2 * KEY_BYTES:
            continue
        starts[key] = array
        for row in range(array.shape[0]):
            table.setdefault(array[row, :KEY_BYTES // array.itemsize].tobytes(), (key, row))
    segments, rest = [], bytearray()
    view, at, plain = memoryview(data), 0, 0

    def literal(end):
        if end > plain:
            segments.append([None, end - plain])
            rest.extend(view[plain:end])

    while at < len(data):
        found = table.get(bytes(view[at:at + KEY_BYTES]))
        row = None
        if found:
            key, number = found
            row = starts[key][number].tobytes()
        if row is None or view[at:at + len(row)] != row:
            at += ALIGNMENT - at % ALIGNMENT
            continue
        literal(at)
        last = segments[-1] if segments else None
        if last and last[0] == key and last[1] + last[2] == number:
            last[2] += 1
        else:
            segments.append([key, number, 1])
        at += len(row)
        plain = at
    literal(len(data))
    recipe = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "segments": segments}
    return json.dumps(recipe), bytes(rest)


def decode(recipe, rest, weights):
    """Returns the file's bytes; ValueError if they are not those that were encoded."""
    recipe = json.loads(recipe)
    wanted = {segment[0] for segment in recipe["segments"] if segment[0] is not None}
    arrays = {key: array for key, array in forms(weights) if key in wanted}
    out, at = bytearray(), 0
    for segment in recipe["segments"]:
        if segment[0] is None:
            out += rest[at:at + segment[1]]
            at += segment[1]
        else:
            key, first, count = segment
            out += arrays[key][first:first + count].tobytes()
    if hashlib.sha256(out).hexdigest() != recipe["sha256"]:
        raise ValueError("the file is not what was packed: weights are drawn in another way here")
    return bytes(out)


def save(path, data, weights):
    """Writes `path` (a .seeded file) for the bytes of a compiled file; returns its size."""
    recipe, rest = encode(data, weights)
    head = zlib.compress(recipe.encode(), 9)
    packed = len(head).to_bytes(8, "little") + head + zlib.compress(rest, 6)
    path.write_bytes(packed)
    return len(packed)


def load(path, weights):
    packed = path.read_bytes()
    size = int.from_bytes(packed[:8], "little")
    return decode(zlib.decompress(packed[8:8 + size]), zlib.decompress(packed[8 + size:]), weights)
