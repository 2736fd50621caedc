"""Tests of repeatability's arithmetic and of what plants a difference, with numpy alone."""

import statistics
import time
import unittest

import numpy as np

from experiments.repeatability import tables, worker


def rounds(factor, noise=0.002, count=11):
    random = np.random.default_rng(3)
    first = 100 * np.exp(random.normal(0, noise, count))
    return {"first": list(first), "second": list(factor * 100 * np.exp(random.normal(
        0, noise, count)))}


class Verdicts(unittest.TestCase):
    def test_equal_ones_are_told_apart_by_no_rule(self):
        same = {"first": [100.0 + i for i in range(9)], "second": [100.0 + i for i in range(9)]}
        found = tables.verdicts(same, 7)
        self.assertEqual({found[rule] for rule in tables.RULES}, {"-"})
        self.assertAlmostEqual(found["effect"], 0)

    def test_three_percent_are_found_by_every_rule(self):
        found = tables.verdicts(rounds(1.03), 7)
        self.assertEqual({found[rule] for rule in tables.RULES}, {"slower"})
        self.assertAlmostEqual(found["effect"], 0.03, delta=0.005)
        self.assertEqual(tables.verdicts(rounds(0.9), 7)["compare"], "faster")

    def test_one_percent_is_too_little_for_the_rule_that_asks_for_two(self):
        found = tables.verdicts(rounds(1.01), 7)
        self.assertEqual((found["compare"], found["any"]), ("-", "slower"))

    def test_noise_hides_a_difference(self):
        self.assertEqual(tables.verdicts(rounds(1.03, noise=0.2), 7)["compare"], "-")


class Rates(unittest.TestCase):
    def test_they_are_shares_of_their_kind(self):
        def pair(kind, verdict):
            return {"kind": kind, "effect": 0.0, **{rule: verdict for rule in tables.RULES}}
        found = tables.rates([pair("same", "-"), pair("same", "faster"), pair("same", "-"),
                              pair("same", "slower"), pair("planted", "slower"),
                              pair("planted", "faster")])
        # A planted one that was called faster was not found.
        self.assertEqual(found["compare"], {"false": 0.5, "found": 0.5})


class Seeds(unittest.TestCase):
    def test_the_mean_goes_by_occurrence_and_the_worst_in_either_direction(self):
        flat = {5: {"first": [100.0] * 5, "second": [104.0] * 5},
                9: {"first": [100.0] * 5, "second": [95.0] * 5}}
        found = tables.seeds(flat, {5: 3, 9: 0})
        self.assertAlmostEqual(found["mean"], 1.04)
        self.assertAlmostEqual(found["worst"], 1 / 0.95 - 1)
        self.assertAlmostEqual(tables.seeds(flat, {})["mean"], (1.04 * 0.95) ** 0.5)

    def test_bars_and_page(self):
        flat = {5: {"first": [100.0] * 5, "second": [102.0] * 5}}
        pairs = [{"kind": kind, "length": 5, **tables.verdicts(rounds(factor), 5)}
                 for kind, factor in (("same", 1.0), ("planted", 1.03))]
        models = {"M": {"threads": 1, "seeds": tables.seeds(flat, {}), "pairs": pairs,
                        "rates": tables.rates(pairs)}}
        bars = tables.bars(models)
        self.assertEqual([bar["kept"] for bar in bars], [True, True, True, True])
        text = tables.markdown({"machine": {"cpu": "c"}, "budget": "1s", "models": models,
                                "bars": bars, "effort": {"rounds": 11}, "seconds": 60})
        self.assertIn("| 5 | 100 | 102 | 1.020 (1.020 – 1.020) |", text)
        self.assertIn("planted 3 % found: 100.0 %, at least 80 %: kept", text)
        models["M"]["rates"][tables.BAR_RULE] = {"false": 0.06, "found": 0.79}
        self.assertEqual([bar["kept"] for bar in tables.bars(models)], [True, True, False, False])


class Planting(unittest.TestCase):
    def test_a_planted_share_is_added_to_each_run_and_taken_back(self):
        class Peer:
            def run(self):
                time.sleep(0.004)
        server = worker.Server.__new__(worker.Server)
        server.peer, server.length, server.share, server.calibrated = Peer(), 1, 0.0, None
        plain = statistics.median(server.burst(1, 1, 5))
        server.plant(0.5)
        slowed = server.burst(1, 1, 5)
        self.assertGreaterEqual(min(slowed), 4_000_000 + server.spin_ns)
        # What is spun is the share of a run, of the one that was calibrated.
        self.assertGreaterEqual(server.spin_ns, 2_000_000)
        server.plant(0)
        self.assertEqual(server.peer.run.__func__, Peer.run)
        self.assertGreater(plain, 0)


if __name__ == "__main__":
    unittest.main()
