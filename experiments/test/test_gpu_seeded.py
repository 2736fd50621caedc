"""Files whose weights are drawn again (experiments/gpu/seeded.py)."""

import pathlib
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.gpu import seeded  # noqa: E402


def drawn():
    generator = np.random.default_rng(1)
    return {"a": generator.standard_normal((40, 24), np.float32),
            "b": generator.standard_normal((24, 40), np.float32),
            "bias": generator.standard_normal(24, np.float32)}


def padded(*parts):
    out = bytearray(b"header")
    for part in parts:
        out += b"\0" * (-len(out) % seeded.ALIGNMENT) + part
    return bytes(out + b"end")


class Seeded(unittest.TestCase):
    def round_trip(self, data, weights):
        recipe, rest = seeded.encode(data, weights)
        self.assertEqual(seeded.decode(recipe, rest, weights), data)
        return len(rest)

    def test_forms_of_weights_are_left_out(self):
        weights = drawn()
        data = padded(weights["a"].tobytes(), np.ascontiguousarray(weights["b"].T).tobytes(),
                      (weights["a"] * np.float32(0.125)).tobytes(),
                      seeded.to_bf16(weights["b"]).tobytes(), weights["bias"].tobytes())
        self.assertLess(self.round_trip(data, weights), 400)

    def test_rows_side_by_side_are_left_out(self):
        weights = drawn()
        both = np.concatenate([weights["a"], weights["a"][::-1]], axis=1)
        self.assertLess(self.round_trip(padded(both.tobytes()), weights), 200)

    def test_what_no_weight_explains_is_kept(self):
        weights = drawn()
        other = np.random.default_rng(2).bytes(1000)
        cut = weights["a"].tobytes()[:-4]  # a row that ends early
        self.assertGreaterEqual(self.round_trip(padded(other, cut), weights), 1000)
        self.assertEqual(self.round_trip(b"", weights), 0)

    def test_other_weights_are_found_out(self):
        weights = drawn()
        recipe, rest = seeded.encode(padded(weights["a"].tobytes()), weights)
        weights["a"][3, 4] += 1
        with self.assertRaisesRegex(ValueError, "drawn in another way"):
            seeded.decode(recipe, rest, weights)

    def test_a_file(self):
        weights = drawn()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "m.seeded"
            data = padded(weights["a"].tobytes())
            self.assertEqual(seeded.save(path, data, weights), path.stat().st_size)
            self.assertEqual(seeded.load(path, weights), data)

    def test_bf16_rounds_to_even(self):
        bits = np.array([0x3F808000, 0x3F818000, 0x3F808001], np.uint32).view(np.float32)
        self.assertEqual(list(seeded.to_bf16(bits)), [0x3F80, 0x3F82, 0x3F81])


if __name__ == "__main__":
    unittest.main()
