"""Tests of experiments/compare, with numpy alone."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

from experiments.harness import compare


def result(times, width=0.01, count=2, experiment="m", cpu="c"):
    """A result file of one case: {system: [µs at the lengths 10, 20, …]}."""
    lengths = []
    for index in range(len(next(iter(times.values())))):
        lengths.append({"length": 10 * (index + 1), "count": count, "systems": {
            system: {"median": values[index], "low": values[index] * (1 - width),
                     "high": values[index] * (1 + width)}
            for system, values in times.items() if values[index] is not None}})
    return {"experiment": experiment, "machine": {"cpu": cpu},
            "cases": [{"name": "m, 1 thread", "lengths": lengths}]}


class Effects(unittest.TestCase):
    def effect(self, old, new, system="nimble", relative=None):
        return compare.effect(old["cases"][0], new["cases"][0], system, relative)

    def test_the_same_result_has_no_effect_within_its_interval(self):
        value, low, high = self.effect(result({"nimble": [100, 200]}), result({"nimble": [100, 200]}))
        self.assertEqual(value, 0)
        self.assertLess(low, 0)
        self.assertGreater(high, 0)

    def test_effect_is_the_geometric_mean_over_common_lengths(self):
        value, low, high = self.effect(result({"nimble": [100, 200, None]}),
                                       result({"nimble": [121, 200, 999]}))
        self.assertAlmostEqual(value, 10)
        self.assertTrue(low < 10 < high)

    def test_lengths_weigh_as_often_as_they_occur(self):
        old, new = result({"nimble": [100, 100]}), result({"nimble": [100, 200]})
        new["cases"][0]["lengths"][0]["count"] = 0
        self.assertAlmostEqual(self.effect(old, new)[0], 100)

    def test_more_lengths_make_the_interval_narrower(self):
        few = self.effect(result({"nimble": [100]}), result({"nimble": [110]}))
        many = self.effect(result({"nimble": [100] * 16}), result({"nimble": [110] * 16}))
        self.assertAlmostEqual((few[2] - few[1]) / (many[2] - many[1]), 4, delta=0.1)

    def test_a_slower_machine_cancels_in_relative_times(self):
        old = result({"nimble": [100, 200], "torch": [300, 500]})
        new = result({"nimble": [130, 260], "torch": [390, 650]})
        self.assertAlmostEqual(self.effect(old, new)[0], 30)
        self.assertAlmostEqual(self.effect(old, new, relative="torch")[0], 0)

    def test_no_common_length_is_no_effect(self):
        self.assertIsNone(self.effect(result({"nimble": [100, None]}),
                                      result({"nimble": [None, 100]})))


class Program(unittest.TestCase):
    def compare(self, old, new, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, content in (("old", old), ("new", new)):
                paths.append(str(pathlib.Path(folder) / f"{name}.json"))
                pathlib.Path(paths[-1]).write_text(
                    content if isinstance(content, str) else json.dumps(content))
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = compare.main([*paths, *arguments])
        return code, out.getvalue(), err.getvalue()

    def test_a_regression_ends_with_4(self):
        code, out, _ = self.compare(result({"nimble": [100, 200]}), result({"nimble": [110, 220]}))
        self.assertEqual(code, 4)
        self.assertIn("slower", out)

    def test_an_improvement_does_not(self):
        code, out, _ = self.compare(result({"nimble": [100, 200]}), result({"nimble": [90, 180]}))
        self.assertEqual(code, 0)
        self.assertIn("faster", out)

    def test_what_is_uncertain_or_small_does_not(self):
        noisy = result({"nimble": [105]}, width=0.2)
        self.assertEqual(self.compare(result({"nimble": [100]}, width=0.2), noisy)[0], 0)
        small = result({"nimble": [101] * 50}, width=0.001)
        self.assertEqual(self.compare(result({"nimble": [100] * 50}, width=0.001), small)[0], 0)
        self.assertEqual(self.compare(result({"nimble": [100] * 50}, width=0.001), small,
                                      "--practical", "0.5")[0], 4)

    def test_a_peer_that_slowed_down_counts_only_if_asked_for(self):
        old = result({"torch": [100], "nimble": [50]})
        new = result({"torch": [150], "nimble": [50]})
        self.assertEqual(self.compare(old, new)[0], 0)
        self.assertEqual(self.compare(old, new, "--systems", "torch")[0], 4)

    def test_json_has_every_row(self):
        code, out, _ = self.compare(result({"torch": [100], "nimble": [50]}),
                                    result({"torch": [100], "nimble": [100]}), "--format", "json")
        rows = json.loads(out)
        self.assertEqual([row["system"] for row in rows], ["torch", "nimble"])
        self.assertEqual(rows[1]["verdict"], "slower")
        self.assertAlmostEqual(rows[1]["effect"], 100)
        self.assertEqual(code, 4)

    def test_errors_name_the_file(self):
        good = result({"nimble": [100]})
        for old, new, message in (("{", good, "old.json: not the result"),
                                  (good, result({"nimble": [1]}, experiment="x"), "is of m"),
                                  (good, result({"torch": [1]}), "no case, length and system")):
            code, _, err = self.compare(old, new)
            self.assertEqual(code, 1)
            self.assertIn(message, err)

    def test_other_machines_are_pointed_out(self):
        _, _, err = self.compare(result({"nimble": [100]}), result({"nimble": [100]}, cpu="d"))
        self.assertIn("--relative", err)


if __name__ == "__main__":
    unittest.main()
