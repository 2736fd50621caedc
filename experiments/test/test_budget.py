"""Tests of the budget run's judgement, without torch or a tuner."""

import unittest

from experiments.budget import program


def report(working=0.9, told=(0.05, -0.1), shares=((0.6, True), (0.3, True), (0.02, False)),
           active=True, ended=""):
    return {"skipped": [], "ended": ended, "spending": {
        "working_share": working, "candidates": 120, "told_errors": list(told),
        "seconds": {"compile": 60.0, "time": 21.0, "other": 9.0}},
        "workloads": [{"label": f"w{i}", "share": share, "trials": 50,
                       **({"table": "t", "active": active} if tuned else {})}
                      for i, (share, tuned) in enumerate(shares)]}


class Judge(unittest.TestCase):
    def test_a_budget_that_is_kept(self):
        record = program.judge(report(), 90.5, 90)
        self.assertEqual(record["broken"], [])
        self.assertEqual((record["tuned"], record["hot"]), (2, 2))
        self.assertAlmostEqual(record["tuned_share"], 0.9)
        self.assertAlmostEqual(record["candidates_per_minute"], 60 * 120 / 90.5)

    def test_each_promise_can_be_broken(self):
        def broken(seconds=90, **more):
            return " ".join(program.judge(report(**more), seconds, 90)["broken"])
        self.assertIn("8 % over", broken(seconds=97.2))
        self.assertIn("without a reason", broken(seconds=50))
        self.assertEqual(broken(seconds=50, ended="every schedule was tried"), "")
        self.assertIn("84 % of the time", broken(working=0.84))
        self.assertIn("not tuned: w1", broken(shares=((0.6, True), (0.3, False))))
        self.assertIn("not tuned: w0, w1", broken(active=False))
        self.assertIn("mistold", broken(told=(0.0, 0.25)))

    def test_a_report_without_an_account(self):
        old = report()
        del old["spending"], old["ended"]
        for w in old["workloads"]:
            w.pop("active", None)
        record = program.judge(old, 90, 90)
        self.assertIsNone(record["working_share"])
        self.assertEqual(record["candidates"], 150)
        self.assertIn("| m | 90.0 s | +0 % | - |", program.markdown([{"model": "m", **record}]))


class Table(unittest.TestCase):
    def test_a_row_for_each_model(self):
        text = program.markdown([{"model": "m", **program.judge(report(), 90, 90)},
                                 {"model": "k", **program.judge(report(working=0.5), 99, 90)}])
        self.assertIn("| m | 90.0 s | +0 % | 90 % | 80 | 2 of 3 | 90 % | 2 of 2 | +5 %, -10 % "
                      "| kept |", text)
        early = program.judge(report(ended="all was tried"), 30, 90)
        self.assertIn("| kept: all was tried |", program.markdown([{"model": "e", **early}]))
        self.assertIn("10 % over the budget; 50 % of the time worked", text)
        self.assertIn("| m | 66.7 | 10.0 | 23.3 |", text)


if __name__ == "__main__":
    unittest.main()
