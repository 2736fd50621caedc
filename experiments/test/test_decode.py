"""The decode experiment's own arithmetic, with numpy alone."""

import importlib.util
import pathlib
import tempfile
import unittest

import numpy as np

from experiments.decode import positions, text_ir, weights
from experiments.decode.plain import Decoder

MICRO = weights.CONFIGS["micro"]


class Inputs(unittest.TestCase):
    def test_a_shorter_prompt_begins_a_longer_one(self):
        whole = weights.prompt(MICRO, 20)
        np.testing.assert_array_equal(weights.prompt(MICRO, 7), whole[:7])
        self.assertTrue(((whole >= 0) & (whole < MICRO.end)).all())

    def test_draws_lie_in_the_unit_interval(self):
        draws = weights.draws(1000)
        self.assertTrue(((draws >= 0) & (draws < 1)).all())
        self.assertAlmostEqual(float(draws.mean()), 0.5, delta=0.05)


class Plain(unittest.TestCase):
    def setUp(self):
        self.decoder = Decoder(MICRO, weights.weights(MICRO))
        self.prompt = weights.prompt(MICRO, 4)

    def test_sampling_from_one_token_is_greedy(self):
        greedy = self.decoder.greedy(self.prompt, 9)
        sampled = self.decoder.sample(self.prompt, 9, 1.0, weights.draws(9), 1)
        np.testing.assert_array_equal(sampled, greedy)

    def test_a_beam_of_one_is_greedy(self):
        paths, _ = self.decoder.beam(self.prompt, 9, 1)
        self.assertEqual(paths, [list(self.decoder.greedy(self.prompt, 9))])

    def test_attention_sees_no_later_token(self):
        q = np.ones((3, MICRO.width))
        value = np.arange(3 * MICRO.width, dtype=float).reshape(3, -1)
        changed = value.copy()
        changed[2] += 5
        seen = self.decoder.attention(q, q, value), self.decoder.attention(q, q, changed)
        np.testing.assert_array_equal(seen[0][:2], seen[1][:2])

    def test_the_context_ends_a_sequence(self):
        full = weights.prompt(MICRO, MICRO.context)
        np.testing.assert_array_equal(self.decoder.greedy(full, 5), full)


class Programs(unittest.TestCase):
    def test_each_layer_extends_its_keys_and_values(self):
        for config in (MICRO, weights.CONFIGS["tiny"]):
            for kind in text_ir.SIGNATURES:
                text = text_ir.program(config, kind)
                self.assertEqual(text.count("attention("), 2 * config.layers, kind)
                for i in range(config.layers):
                    for state in (f"%k{i}:", f"%v{i}:"):
                        self.assertEqual(text.count(state), 1, kind)


class Positions(unittest.TestCase):
    def test_differences_of_whole_sequences(self):
        def entry(length, us):
            return {"length": length, "systems": {"a": {"median": us}}}
        case = {"lengths": [entry(64, 500.0), entry(32, 100.0), entry(128, 1780.0)]}
        self.assertEqual(list(positions.steps(case)),
                         [(32, 64, {"a": 12.5}), (64, 128, {"a": 20.0})])


@unittest.skipUnless(importlib.util.find_spec("onnxruntime"), "needs ONNX Runtime")
class Quantised(unittest.TestCase):
    def test_all_matrices_of_products_are_in_4_bits(self):
        import onnx

        from experiments.decode import quantised, shared_cache
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "m.onnx"
            shared_cache.export(MICRO, path)
            quantised.quantise(path, 4)
            nodes = onnx.load(path).graph.node
        self.assertNotIn("MatMul", [node.op_type for node in nodes])
        products = [{a.name: a.i for a in node.attribute} for node in nodes
                    if node.op_type == "MatMulNBits"]
        self.assertEqual(len(products), 4 * MICRO.layers + 1)
        for attributes in products:
            self.assertEqual((attributes["bits"], attributes["block_size"],
                              attributes["accuracy_level"]), (4, 32, 4))


class Cases(unittest.TestCase):
    def test_each_bar_is_of_a_case(self):
        import json

        from experiments.decode.experiment import EXPERIMENT, HERE
        names = {f"{one.case or one.name}, {n} thread{'s' if n > 1 else ''}"
                 for one in (EXPERIMENT, *EXPERIMENT.variants) for n in one.threads}
        bars = json.loads((HERE / "bars.json").read_text())
        self.assertLessEqual({bar["case"] for bar in bars}, names)


if __name__ == "__main__":
    unittest.main()
