"""Tests of the models and of the arithmetic behind the claims, without an executable."""

import pathlib
import tempfile
import unittest

from experiments.claims import program, tables


def run(shape_us=1.0, storages=8.0, calls=50.0, wall=1000.0, copies=()):
    return {"wall_us": wall, "kernel_us": wall - 20, "peak": 1 << 20, "copies": list(copies),
            "input_bytes": 64, "output_bytes": 128,
            "instructions": [{"name": "ShapeOf", "count": 2, "us": shape_us / 2},
                             {"name": "Invoke", "count": 3, "us": shape_us / 2},
                             {"name": "AllocStorage", "count": storages, "us": 1.0},
                             {"name": "InvokePacked", "count": calls, "us": wall - 15}]}


def copy(source, count, size):
    return {"from": source, "to": "cpu" if source != "cpu" else "stand-in", "count": count,
            "bytes": size}


def result(shape_us=1.0, extra=0, without=50.0, on_device=True):
    plain = run(shape_us)
    copies = [copy("cpu", 2, 64 + extra), copy("stand-in", 1, 128)] if on_device else []
    placed = tables.placement(run(copies=copies))
    found = {"machine": {"cpu": "c"}, "threads": 2, "placement": placed,
             "runs": [{"model": "m", "length": 16, "wall_us": 1000.0, "kernel_us": 980.0,
                       "shape": tables.shape_cost(plain), "overhead": tables.overhead(plain)}],
             "passes": [{"model": "m", "pass": "p",
                         **tables.without(plain, run(calls=without, wall=1100.0))}],
             "sizes": [{"model": "m", "code": 1 << 20, "constants": 100 << 20}]}
    found["claims"] = tables.judge(found)
    return found


class Models(unittest.TestCase):
    def test_the_loop_has_its_weights_beside_it(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(program.loop(pathlib.Path(folder)))
            self.assertEqual(path.suffix, ".nir")
            self.assertTrue(path.with_name(path.name + ".safetensors").exists())


class Claims(unittest.TestCase):
    def holds(self, **more):
        return [claim["holds"] for claim in result(**more)["claims"]]

    def test_each_can_fail(self):
        self.assertEqual(self.holds(without=51.0), [True] * 5)
        self.assertEqual(self.holds(without=51.0, extra=1)[0], False)
        self.assertEqual(self.holds(without=51.0, on_device=False)[0], False)
        self.assertEqual(self.holds(without=51.0, shape_us=11.0)[1], False)
        self.assertEqual(self.holds()[2], False)

    def test_what_is_counted(self):
        plain = run(4.0)
        self.assertEqual(tables.shape_cost(plain), {"count": 5, "us": 4.0, "share": 0.004})
        self.assertAlmostEqual(tables.overhead(plain)["share"], 0.02)
        self.assertEqual(tables.overhead(plain)["instructions"], 63)
        self.assertEqual(tables.instruction(plain, "Goto"), (0.0, 0.0))

    def test_the_page(self):
        text = tables.markdown(result(extra=8))
        self.assertIn("3 copies a run, +8 bytes beyond inputs and results", text)
        self.assertIn("| m | 16 | 1.00 | 98.00 % | 63 | 50 | 1.0 | 0.10 % | 0.317 |", text)
        self.assertIn("| m | p | 8 | 8 | 50 | 50 | 1.00 | 1.00 | +10.0 % |", text)


if __name__ == "__main__":
    unittest.main()
