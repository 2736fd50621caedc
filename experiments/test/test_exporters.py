"""Tests of the exporters run's bookkeeping, without torch or a compiler."""

import types
import unittest

import numpy as np

from experiments.exporters import compare, program


def record(model, exporter, status="equal", **more):
    return {"model": model, "group": "g", "exporter": exporter, "status": status, "equal": 5,
            "largest_error": 0.25, "message": "", "shapes": ["n=1"] * 5, "compile_seconds": 0.52,
            **more}


class Difference(unittest.TestCase):
    def test_floats_may_differ_by_the_tolerance(self):
        wanted = [np.array([0.0, 100.0], np.float32)]
        inside = [np.array([compare.ATOL / 2, 100.0], np.float32)]
        error, problem = compare.difference(inside, wanted)
        self.assertEqual(problem, "")
        self.assertAlmostEqual(error, 0.5, places=3)
        error, problem = compare.difference([np.array([0.0, 100.1], np.float32)], wanted)
        self.assertIn("1 of 2 elements", problem)
        self.assertGreater(error, 1)

    def test_integers_and_shapes_may_not_differ(self):
        wanted = [np.array([1, 2])]
        self.assertEqual(compare.difference([np.array([1, 2])], wanted)[1], "")
        self.assertIn("1 of 2", compare.difference([np.array([1, 3])], wanted)[1])
        self.assertIn("[1, 2]", compare.difference([np.array([[1, 2]])], wanted)[1])
        self.assertIn("outputs", compare.difference([], wanted)[1])

    def test_infinities_and_nan_are_values(self):
        values = np.array([np.inf, -np.inf, np.nan])
        self.assertEqual(compare.difference([values], [values])[1], "")
        for other in ([np.inf, -np.inf, 0], [np.inf, np.inf, np.nan], [1, -np.inf, np.nan]):
            self.assertIn("1 of 3", compare.difference([np.array(other)], [values])[1])

    def test_empty_tensors_are_equal(self):
        empty = np.zeros((0, 3), np.float32)
        self.assertEqual(compare.difference([empty], [empty]), (0.0, ""))


class Table(unittest.TestCase):
    ENTRIES = [types.SimpleNamespace(name="a", group="g", about="one"),
               types.SimpleNamespace(name="b", group="g", about="two")]
    RECORDS = [record("a", "torchscript"), record("a", "torch.export", "not exported",
                                                  message="TypeError: no"),
               record("b", "torchscript", "failed", message="at n=1: no"),
               record("b", "torch.export", compile_seconds=3.14)]
    del RECORDS[1]["compile_seconds"]

    def test_a_row_for_each_model_and_a_line_for_each_that_is_not_equal(self):
        text = program.markdown(self.ENTRIES, self.RECORDS, 5, "1e-5")
        self.assertIn("| g | a | one | 5/5, 0.25 | 0.5 | not exported |  |", text)
        self.assertIn("| g | b | two | failed | 0.5 | 5/5, 0.25 | 3.1 |", text)
        self.assertIn("2 equal, 1 not exported, 1 failed.", text)
        self.assertIn("The slowest compilation: b, torch.export, 3.1 s.", text)
        self.assertIn("- **a**, torch.export: not exported. TypeError: no", text)

    def test_no_message_list_where_all_is_equal(self):
        text = program.markdown(self.ENTRIES[:1], [record("a", "torchscript")], 5, "1e-5")
        self.assertNotIn("Not equal", text)


if __name__ == "__main__":
    unittest.main()
