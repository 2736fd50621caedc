"""Tests of the memory study's arithmetic, without torch or an executable."""

import unittest

from experiments.harness.errors import WRONG_RESULT, ExperimentError
from experiments.memory_study import program, tables


def shape(storages, ns, system=0.0, peak=1 << 20):
    return {"instructions": {"AllocStorage": {"count": storages, "ns": ns},
                             "FreeStorage": {"count": storages, "ns": ns / 2}},
            "system": system, "peak": peak, "wall_ns": 1e6, "reserved": peak}


def result(system=0.0, dynamic=1 << 20):
    planned = {"sizes": [{"n": 16}, {"n": 53}],
               "shapes": [shape(10, 400.0, system), shape(10, 600.0, system)]}
    unplanned = {"sizes": planned["sizes"],
                 "shapes": [shape(40, 2000.0, peak=2 << 20), shape(40, 2000.0, peak=4 << 20)]}
    rows, changes = tables.compare_planning(planned, unplanned)
    found = {"machine": {"cpu": "c"}, "threads": 2,
             "planning": {"rows": rows, "changes": changes, "changing": [3.5, 0.25]},
             "footprint": {"net": {"sizes": {"h": 224}, **tables.compare_footprint(
                 {"shapes": [shape(1, 1.0, peak=dynamic)]}, {"shapes": [shape(1, 1.0)]})}}}
    found["bars"] = tables.bars(found)
    return found


class Planning(unittest.TestCase):
    def test_changes_are_means_over_the_lengths(self):
        planning = result()["planning"]
        self.assertAlmostEqual(planning["changes"]["storages"], -0.75)
        self.assertAlmostEqual(planning["changes"]["time"], (0.2 + 0.3) / 2 - 1)
        self.assertAlmostEqual(planning["changes"]["peak"], (0.5 + 0.25) / 2 - 1)
        self.assertEqual(planning["rows"][0]["time_us"], [3.0, 0.6])
        self.assertAlmostEqual(planning["rows"][0]["share"][0], 0.003)

    def test_nothing_before(self):
        self.assertIsNone(tables.change(0, 3))
        self.assertEqual(tables.handling_ns({"instructions": {}}), 0)


class Results(unittest.TestCase):
    def test_executables_that_compute_something_else_are_told(self):
        same = {"outputs": [[-1.0, 1.0, 0.5], [0.0, 100.0, 3.0]]}
        program.must_agree("net", same, {"outputs": [[-1.0, 1.0, 0.5], [0.0, 100.005, 3.0]]})
        for wrong in (101.0, float("nan"), float("inf")):
            for one, other in ((3.0, wrong), (wrong, 3.0), (wrong, wrong + 1)):
                with self.assertRaises(ExperimentError) as told:
                    program.must_agree("net", {"outputs": [[one]]}, {"outputs": [[other]]})
                self.assertEqual(told.exception.code, WRONG_RESULT)


class Bars(unittest.TestCase):
    def kept(self, **more):
        return [bar["kept"] for bar in result(**more)["bars"]]

    def test_each_bar_can_be_missed(self):
        self.assertEqual(self.kept(), [True, True])
        self.assertEqual(self.kept(system=0.05), [False, True])
        self.assertEqual(self.kept(dynamic=int(1.09 * (1 << 20))), [True, False])
        self.assertEqual(self.kept(dynamic=int(1.07 * (1 << 20))), [True, True])

    def test_the_page(self):
        text = tables.markdown(result(system=0.5))
        self.assertIn("| 16 | 40 | 10 | 3.00 | 0.60 | 0.30 % | 0.06 % | 0 | 0.5 | 2.0 | 1.0 |", text)
        self.assertIn("| net | h = 224 | 1.00 | 1.00 | +0.0 % |", text)
        self.assertIn("in a steady run of BERT: 0.5, at most 0: not kept", text)


if __name__ == "__main__":
    unittest.main()
