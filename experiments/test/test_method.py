"""Tests of the method study's choices and arithmetic, with numpy alone."""

import math
import unittest

from experiments.method import choice, program, tables


def trial(configuration, size, ns, role="cross", number=0, predicted=None):
    return {"configuration": configuration, "shape": f"s0={size}", "median_ns": ns, "role": role,
            "round": number, "predicted_ns": predicted}


# At 64 a is the fastest, b loses a little there and wins at all others; c is the third.
TRIALS = [trial("d", 64, 100.0, "baseline"), trial("a", 64, 50.0, "search"),
          trial("b", 64, 51.0, "search"), trial("c", 64, 60.0, "search"),
          trial("x", 64, None, "search"),
          trial("a", 8, 20.0), trial("b", 8, 10.0), trial("c", 8, 15.0),
          trial("a", 17, 9.0, "verify"),
          trial("a", 256, 190.0), trial("b", 256, 200.0), trial("c", 256, 300.0)]


class Choice(unittest.TestCase):
    def test_the_search_is_told_in_its_order_and_failures_have_no_time(self):
        self.assertEqual([c for c, _ in choice.searched(TRIALS, 64)], ["d", "a", "b", "c", "x"])
        self.assertEqual(choice.fastest(TRIALS, 64, 2), ["a", "b"])
        self.assertNotIn("x", choice.fastest(TRIALS, 64, 9))

    def test_one_is_kept_of_k_by_its_loss_at_all_sizes(self):
        even = lambda size: 1  # noqa: E731
        self.assertEqual(choice.one_configuration(TRIALS, 64, 1, even), ("a", 1))
        self.assertEqual(choice.one_configuration(TRIALS, 64, 10, even), ("b", 3))

    def test_weights_change_the_choice(self):
        far = choice.nearest_weight({250: 5, 300: 2}, {8, 64, 256})
        self.assertEqual([far(8), far(64), far(256), far(3)], [0, 0, 7, 0])
        self.assertEqual(choice.one_configuration(TRIALS, 64, 10, far), ("a", 3))

    def test_what_was_not_measured_everywhere_is_not_compared(self):
        fewer = [t for t in TRIALS if (t["configuration"], t["median_ns"]) != ("b", 200.0)]
        self.assertEqual(choice.one_configuration(fewer, 64, 10, lambda size: 1), ("a", 2))
        alone = [t for t in TRIALS if t["role"] != "cross"]
        self.assertEqual(choice.one_configuration(alone, 64, 10, lambda size: 1)[0], "a")
        self.assertEqual(choice.one_configuration([], 64, 10, lambda size: 1), (None, 0))

    def test_sizes_count_that_anything_was_timed_at(self):
        self.assertEqual(choice.measured_sizes(TRIALS), {8, 17, 64, 256})
        self.assertEqual(choice.measured_sizes([trial("a", 32, None)]), set())

    def test_ranks(self):
        self.assertEqual(list(choice.ranks([3, 1, 3, 2])), [2.5, 0, 2.5, 1])
        self.assertAlmostEqual(choice.rank_correlation([1, 2, 3, 4], [1, 4, 9, 16]), 1)
        self.assertAlmostEqual(choice.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]), -1)
        self.assertIsNone(choice.rank_correlation([1, 1, 1], [1, 2, 3]))

    def test_correlations_are_of_rounds_that_were_predicted(self):
        rows = [trial(str(i), 64, 10.0 + i, "search", 1, 20.0 + i) for i in range(4)] \
            + [trial(f"f{i}", 64, 10.0 + i, "search", 0) for i in range(4)] \
            + [trial(f"o{i}", 8, 10.0 - i, "search", 1, 20.0 + i) for i in range(4)]
        self.assertEqual([number for number, _ in choice.correlations(rows, 64)], [1])
        self.assertAlmostEqual(choice.correlations(rows, 64)[0][1], 1)

    def test_trials_to_reach(self):
        self.assertEqual(choice.best_so_far([None, 2.0, 3.0, 1.0], 4), [math.inf, 2.0, 2.0, 1.0])
        self.assertEqual(choice.trials_to_reach([None, 2.0, 3.0, 1.0], 2.0), 2)
        self.assertIsNone(choice.trials_to_reach([2.0, 3.0], 1.0))


class Tables(unittest.TestCase):
    def products(self, speed):
        rows = [{"length": n, "inside": n == 8, "variants": {
            "static": {"us": 10.0, "speed": 1.0}, tables.OURS: {"us": 10.0, "speed": speed},
            "one-100": {"us": 10.0, "speed": 0.8}}} for n in (8, 11)]
        return {"p": {"lengths": rows, "per_shape_s": 60.0, "method_s": 10.0,
                      "about": {tables.OURS: {"seconds": 10.0, "entries": 2},
                                "table-medoids": {"seconds": 1.0, "entries": None},
                                "one-100": {"among": 5}}}}

    def searches(self):
        return [{"seed": 1, "model": [1.0, 0.8, 0.7], "random": [1.0, 0.9, 0.9, 0.8],
                 "correlations": [(1, 0.5)]},
                {"seed": 2, "model": [1.0, 1.0], "random": [1.0, 0.9], "correlations": [(1, 0.7)]},
                {"seed": 3, "model": [0.9, 0.9], "random": [1.0, 0.9], "correlations": []}]

    def test_the_share_of_trials_and_one_that_never_gets_there(self):
        found = tables.cost_model(self.searches())
        self.assertEqual(found["shares"], [0.5, None, 0.5])
        self.assertEqual(found["median_share"], 0.5)
        self.assertAlmostEqual(found["correlations"]["1"], 0.6)

    def test_bars(self):
        model = tables.cost_model(self.searches())
        kept = tables.bars(tables.summarise(self.products(0.97)), model, 2)
        self.assertEqual([bar["kept"] for bar in kept], [True] * 6)
        kept = tables.bars(tables.summarise(self.products(0.89)), model, 2)
        self.assertEqual([bar["kept"] for bar in kept], [True, False, False, True, True, True])

    def test_a_search_that_was_cut_short_and_lengths_that_were_measured_keep_no_bar(self):
        model = tables.cost_model(self.searches())
        products = self.products(0.97)
        for row in products["p"]["lengths"]:
            row["inside"] = True
        bars = {bar["name"]: bar for bar in tables.bars(tables.summarise(products), model, 64)}
        shortest = bars["trials of the shortest random search"]
        self.assertEqual((shortest["value"], shortest["kept"]), (2, False))
        self.assertFalse(bars["lengths that the campaign did not measure"]["kept"])

    def test_the_page(self):
        products = self.products(0.97)
        summary, model = tables.summarise(products), tables.cost_model(self.searches())
        text = tables.markdown({
            "machine": {"cpu": "c"}, "effort": {"products": ["p"], "within": "1m",
                                                "max_trials": 5},
            "searched": 64, "summary": summary, "products": products, "cost_model": model,
            "searches": self.searches(), "searched_product": "p", "seconds": 60.0,
            "ended_by_trials": False, "bars": tables.bars(summary, model, 2)})
        self.assertIn("The method took 10 s, tuning each length 60 s: 16.7 %.", text)
        self.assertIn("| 11 (outside) | 10 | 80.0 % | 97.0 % |", text)
        self.assertIn("geometric mean: 97.0 %, at least 97.0 %: kept", text)
        self.assertIn("| 2 | 0.900 | 1.000 | - | not reached |", text)
        self.assertIn("Of the 2 lengths 1 lie outside of what the campaign measured.", text)
        self.assertIn("of 2 to 4 trials", text)
        self.assertIn("so this is the default schedule: our table, searched at medoids.", text)


class Lengths(unittest.TestCase):
    def test_as_many_inside_as_outside_of_the_cross_evaluation(self):
        self.assertEqual(len(program.INSIDE), len(program.OUTSIDE))
        self.assertEqual(len(set(program.INSIDE) | set(program.OUTSIDE)), 16)


if __name__ == "__main__":
    unittest.main()
