"""Tests of Table 4's arithmetic, with numpy alone."""

import unittest

from experiments.table4 import tables


def found(run, replay, calls=3):
    return {"run_us": run, "replay_us": replay, "calls": calls, "profile": {
        "runs": 4, "instructions": [{"name": "InvokePacked", "count": 12, "total_ns": 40_000},
                                    {"name": "Ret", "count": 4, "total_ns": 400}]}}


class Table4(unittest.TestCase):
    def row(self, run=1020.0, replay=1000.0, static=1000.0):
        return tables.summarise(found([run] * 5, [replay] * 5), found([1100.0] * 5, [static] * 5))

    def test_what_is_not_the_kernels(self):
        row = self.row()
        self.assertAlmostEqual(row["others_us"], 20.0)
        self.assertAlmostEqual(row["others"]["value"], 20 / 1020)
        self.assertAlmostEqual(row["others"]["interval"][0], 20 / 1020)
        self.assertAlmostEqual(row["over_static"]["value"], 1.02)
        self.assertAlmostEqual(row["kernels_over_static"]["value"], 1.0)
        self.assertEqual(row["static_by_vm_us"], 1100.0)
        self.assertEqual(row["instructions"][0], {"name": "InvokePacked", "count": 3, "us": 10.0})

    def test_intervals_are_of_paired_rounds(self):
        run, replay = [100.0, 200.0, 300.0], [50.0, 100.0, 150.0]
        ratio = tables.ratio_of(run, replay)
        self.assertEqual((ratio["value"], ratio["interval"]), (2.0, [2.0, 2.0]))

    def test_bars(self):
        def kept(**more):
            return [bar["kept"] for bar in tables.bars(self.row(**more))]
        self.assertEqual(kept(), [True, True])
        self.assertEqual(kept(run=1040.0), [False, False])
        self.assertEqual(kept(static=980.0), [True, False])

    def test_the_page(self):
        row = {"threads": 2, **self.row()}
        text = tables.markdown({
            "title": "m", "length": 128, "machine": {"cpu": "c"}, "budget": "90s each",
            "rows": [row], "bars": tables.bars(row),
            "tuning": {"dynamic": {"trials": 40, "workloads": 5},
                       "static": {"trials": 50, "workloads": 5}}})
        self.assertIn("| 2 threads | - | 1.00 | 1.02 | 1.00 | 0.020 | 1.96 % (2.0 % – 2.0 %) | "
                      "+2.0 % | +0.0 % | 1.10 |", text)
        self.assertIn("| paper: Intel, 18 cores | 19.38 | - | 24.32 | 21.06 | 3.26 | 13.4 % |",
                      text)
        self.assertIn("static 50 of 5 workloads", text)


if __name__ == "__main__":
    unittest.main()
