"""Tests of Figure 3's arithmetic, with numpy alone."""

import unittest

from experiments.figure3 import tables


def layers(full=1.01, one=1.2):
    def us(static):
        times = {name: [1.1 * s for s in static] for name in tables.VARIANTS}
        return {**times, "8": [full * s for s in static], "1": [one * s for s in static],
                "static": static}
    return [{"k": 768, "n": n, "activation": a, "config": "{}",
             "lengths": [{"m": 121, "us": us([100.0, 200.0, 90.0])},
                         {"m": 128, "us": us([50.0, 60.0, 70.0])}]}
            for n, a in ((768, ""), (3072, "gelu"))]


class Figure3(unittest.TestCase):
    def test_ratios_are_of_rounds(self):
        rows, means = tables.summarise(layers())
        self.assertEqual([row["name"] for row in rows], ["768 → 768", "768 → 3072 + gelu"])
        self.assertAlmostEqual(rows[0]["variants"]["8"]["mean"], 1.01)
        self.assertAlmostEqual(rows[0]["variants"]["8"]["interval"][1], 1.01)
        self.assertAlmostEqual(rows[1]["variants"]["1"]["worst"], 1.2)
        self.assertAlmostEqual(means["4"], 1.1)
        self.assertEqual(rows[0]["static_us"], [100.0, 60.0])

    def test_the_bar(self):
        self.assertTrue(tables.bars(tables.summarise(layers())[1])[0]["kept"])
        self.assertFalse(tables.bars(tables.summarise(layers(full=1.04))[1])[0]["kept"])

    def test_the_page(self):
        rows, means = tables.summarise(layers())
        text = tables.markdown({"machine": {"cpu": "c"}, "threads": 1, "layers": rows,
                                "means": means, "bars": tables.bars(means)})
        self.assertIn("| 768 → 768 | 1.010 (1.010 – 1.010), worst 1.010 |", text)
        self.assertIn("| mean | 1.010 | 1.100 | 1.100 | 1.200 | 1.100 | 1.100 |", text)
        self.assertIn("| 128 | 1.010 | 1.100 | 1.100 | 1.200 | 1.100 | 1.100 | 60, 60 |", text)
        self.assertIn("+1.0 %, at most 3 %: kept", text)


if __name__ == "__main__":
    unittest.main()
