"""Tests of what the churn study draws and says, with numpy alone."""

import unittest

import numpy as np

from experiments.churn import chart, visits


class Shapes(unittest.TestCase):
    def test_drawn_within_bounds_and_by_the_seed(self):
        shapes = visits.draw_shapes(3000, (1, 8), (1, 128), (2, 64), 7)
        self.assertEqual(len(shapes), 3000)
        self.assertEqual({b for b, _ in shapes}, set(range(1, 9)))
        self.assertEqual((min(n for _, n in shapes), max(n for _, n in shapes)), (1, 128))
        self.assertNotIn((2, 64), shapes)
        self.assertEqual(shapes, visits.draw_shapes(3000, (1, 8), (1, 128), (2, 64), 7))
        self.assertNotEqual(shapes, visits.draw_shapes(3000, (1, 8), (1, 128), (2, 64), 8))
        ones = sum(b == 1 for b, _ in shapes) / 3000
        self.assertAlmostEqual(ones, np.log(2) / np.log(9), delta=0.04)

    def test_first_visits(self):
        self.assertEqual(visits.first_visits([(1, 2), (1, 2), (2, 1), (1, 2), (2, 1)]),
                         [True, False, True, False, False])


class Summary(unittest.TestCase):
    SHAPES = 50 * [(1, 1), (1, 2), (1, 1), (2, 2)]

    def summary(self, first=1.0, later=1.0, control=1.0):
        shapes = [(1, n) for n in range(1, 101)] + [(1, n) for n in range(1, 101)]
        steady = {(1, n): 10.0 * n for n in range(1, 101)}
        times = [10.0 * n * first for n in range(1, 101)] + [10.0 * n * later
                                                             for n in range(1, 101)]
        return visits.summarise(shapes, times, steady, 95 * [50.0] + 5 * [50.0 * control])

    def test_ratios_are_to_the_shape_itself(self):
        s = self.summary(first=1.5)
        self.assertEqual((s["visits"], s["first_visits"]), (200, 100))
        self.assertAlmostEqual(s["first_ratio"]["p95"], 1.5)
        self.assertAlmostEqual(s["first_ratio_p95_interval"][0], 1.5)
        self.assertAlmostEqual(s["later_ratio"]["max"], 1.0)
        self.assertAlmostEqual(s["first_extra_us"]["max"], 500.0)
        self.assertAlmostEqual(s["spread"], 1.5 / 1.25)
        self.assertAlmostEqual(s["control_spread"], 1.0)

    def test_the_spread_is_over_the_controls(self):
        s = self.summary(first=1.5, control=2.0)
        self.assertAlmostEqual(s["control_spread"], 2.0)
        self.assertAlmostEqual(s["spread_over_control"], 0.6)

    def test_bars(self):
        def kept(**more):
            return [bar["kept"] for bar in visits.judge(self.summary(**more), 1.3, 1.3)]
        self.assertEqual(kept(), [True, True])
        self.assertEqual(kept(first=1.31), [False, True])
        self.assertEqual(kept(first=3.0), [False, False])
        self.assertEqual(kept(first=1.25, later=1.25), [True, True])

    def test_who_reaches_no_shape_keeps_no_bar(self):
        bars = visits.judge(None, 1.3, 1.3)
        self.assertEqual([bar["kept"] for bar in bars], [False, False])
        self.assertIn("ratio: -, bar 1.3: not kept", chart.bar_line(bars[0]))

    def test_nothing_seen_twice(self):
        s = visits.summarise([(1, 1), (1, 2)], [2.0, 2.0], {(1, 1): 1.0, (1, 2): 1.0}, [1.0, 1.0])
        self.assertIsNone(s["later_ratio"])

    def test_a_row_for_each_system(self):
        s = {**self.summary(first=1.4), "first_run_us": 900.0,
             "memory": {"warm": 1 << 20, "held": 2 << 20, "peak": 3 << 20}}
        text = chart.markdown({
            "title": "t", "machine": {"cpu": "c"}, "batches": (1, 8), "lengths": (1, 128),
            "control": (2, 64), "effort": {"visits": 200, "seed": 1, "threads": 2, "minutes": 20},
            "systems": {"nimble": s}, "failed": {"openvino": "its process ended"},
            "bars": visits.judge(s, 1.3, 1.3)})
        self.assertIn("| nimble | 200 (100 new) | 0.6 | 1.4 | 1.40 | 1.40 |", text)
        self.assertIn("| 0.9 | 1 | 2 | 3 |", text)
        self.assertIn("- OpenVINO: its process ended", text)
        self.assertIn("ratio: 1.40, bar 1.3: not kept", text)


if __name__ == "__main__":
    unittest.main()
