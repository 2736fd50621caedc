"""The decode experiment's own arithmetic, with numpy alone."""

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


if __name__ == "__main__":
    unittest.main()
