"""Tests of the regret study's arithmetic and draws, with numpy alone."""

import argparse
import contextlib
import io
import json
import pathlib
import re
import tempfile
import unittest
import unittest.mock

from experiments.regret import models, program, tables


def shape(regret, symbols=(1, 2), unsearched=None):
    s = {"symbols": list(symbols), "regret": regret, "tree_regret": regret / 2,
         "pool_regret": regret / 2, "noise": 0.001, "candidates": 20, "default_ns": 120.0, "chosen_ns": 100.0}
    return s if unsearched is None else {**s, "unsearched": unsearched}


def workload(key, regrets, symbols=("b", "n"), **more):
    return {"workload": key, "label": f"w {key}", "symbols": list(symbols), "table": "t", "pool": 3,
            "candidates": 40, "failed": 0, "shapes": [shape(r) for r in regrets], **more}


def report(workloads):
    return {"workloads": workloads, "consumed_s": 30.0, "searched_s": 10.0, "complete": True,
            "skipped": []}


class Tables(unittest.TestCase):
    def test_spread_is_of_sorted_values(self):
        found = tables.spread([i / 100 for i in range(100, 0, -1)])
        self.assertEqual((found["p95"], found["worst"]), (0.95, 1.0))
        self.assertAlmostEqual(found["median"], 0.505)
        self.assertIsNone(tables.spread([]))

    def test_what_is_foretold_is_the_largest_that_was_seen_and_the_noise(self):
        tuned = {"workloads": [
            {"workload": "a", "table": "t", "worst_regret": 0.25, "held_out_worst_regret": 0.5,
             "noise": 0.125},
            {"workload": "b", "table": "t", "worst_regret": 0.25, "held_out_worst_regret": 0.0},
            {"workload": "c", "table": "t", "worst_regret": 0.25},
            {"workload": "d", "worst_regret": 0.0}]}
        self.assertEqual(tables.bounds_of(tuned), {"a": 0.625, "b": 0.25, "c": 0.25})

    def test_shapes_of_all_workloads_count_alike(self):
        a = workload("a", [0.01, 0.01, 0.09])
        b = workload("b", [0.03], symbols=("m",))
        b["shapes"].append(shape(0.2, (7,), unsearched=0.0))
        found = tables.summarise(report([a, b, workload("c", [])]), {"a": 0.02, "b": 0.5})
        self.assertEqual((found["shapes"], found["several"], found["searches"]), (5, 3, 1))
        self.assertAlmostEqual(found["regret"]["median"], 0.03)
        self.assertAlmostEqual(found["regret_several"]["median"], 0.01)
        self.assertAlmostEqual(found["within"], 4 / 5)  # 2 of 3 and 2 of 2
        self.assertEqual(found["seconds_per_shape"], 4.0)
        self.assertEqual(found["seconds_per_search"], 10.0)
        self.assertEqual(found["rows"][1]["regret_unsearched"]["median"], 0.0)
        self.assertEqual(found["rows"][1]["regret_searched"]["median"], 0.2)
        self.assertIsNone(found["rows"][0]["regret_searched"])

    def test_bars(self):
        found = tables.summarise(report([workload("a", [0.01] * 20)]), {"a": 0.02})
        kept = tables.bars({"M": found}, {"M": 20}, 0)
        self.assertEqual([bar["kept"] for bar in kept], [True] * 8)
        self.assertEqual([bar["kept"] for bar in tables.bars({"M": found}, {"M": 21}, 1)],
                         [True] * 5 + [False] * 3)
        nothing = tables.summarise(report([]), {})
        self.assertFalse(any(bar["kept"] for bar in tables.bars({"M": nothing}, {"M": 1}, 1)))
        worse = tables.summarise(report([workload("a", [0.01] * 18 + [0.09, 0.1])]), {"a": 0.02})
        self.assertEqual([bar["kept"] for bar in tables.bars({"M": worse}, {"M": 1}, 0)],
                         [True, False, True, False, False, True, True, True])

    def test_many_easy_shapes_hide_no_regret_at_several_symbols(self):
        easy = workload("a", [0.0] * 190, symbols=("n",))
        found = tables.summarise(report([easy, workload("b", [0.05] * 5 + [0.2] * 5)]),
                                 {"a": 1.0, "b": 1.0})
        bars = {bar["name"]: bar for bar in tables.bars({"M": found}, {"M": 200}, 0)}
        self.assertTrue(bars["M: median regret"]["kept"] and bars["M: 95th percentile"]["kept"])
        for name in ("median regret", "95th percentile"):
            self.assertFalse(bars[f"M, several symbols: {name}"]["kept"])
        # Without any such shape nothing is known of them.
        found = tables.summarise(report([easy]), {"a": 1.0})
        bars = {bar["name"]: bar for bar in tables.bars({"M": found}, {"M": 190}, 0)}
        self.assertFalse(bars["M, several symbols: median regret"]["kept"])

    def test_shapes_of_one_model_do_not_stand_in_for_those_of_another(self):
        many = tables.summarise(report([workload("a", [0.01] * 20)]), {"a": 0.02})
        few = tables.summarise(report([workload("b", [0.01] * 2)]), {"b": 0.02})
        bars = {bar["name"]: bar for bar in
                tables.bars({"many": many, "few": few}, {"many": 10, "few": 5}, 0)}
        self.assertTrue(bars["shapes that were measured"]["kept"])
        self.assertTrue(bars["many: shapes that were measured"]["kept"])
        self.assertFalse(bars["few: shapes that were measured"]["kept"])

    def test_the_page(self):
        found = tables.summarise(report([workload("a", [0.01, 0.03]), workload("b", [])]), {})
        text = tables.markdown({
            "machine": {"cpu": "c"}, "threads": 1, "tuned": {"bert": 1.0, "convolution": 2.0},
            "top_k": 100, "look": "2s", "search_trials": 100, "models": {"M": found}, "seconds": 60.0,
            "within": "1m", "bars": tables.bars({"M": found}, {"M": 1}, 0)})
        self.assertIn("| w a | b, n | 2 | 20 (20 – 40) | 2.0 % / 3.0 % | 1.0 % / 1.5 % |", text)
        self.assertIn("- M: median regret: 2.0 %, at most 2.0 %: kept", text)
        self.assertNotIn("loosest bound", text)
        self.assertIn("- shapes that were measured: 2, at least 1: kept", text)


    def test_a_bound_that_says_little_is_named(self):
        def page(bound):
            found = tables.summarise(report([workload("a", [0.01, 0.03])]), {"a": bound})
            return tables.markdown({
                "machine": {"cpu": "c"}, "threads": 1, "tuned": {"bert": 1.0, "convolution": 2.0},
                "top_k": 100, "look": "2s", "search_trials": 100, "models": {"M": found},
                "seconds": 60.0, "within": "1m", "bars": tables.bars({"M": found}, {"M": 1}, 0)})
        self.assertIn("The loosest bound is 250.0 % (w a), where the largest regret is 3.0 %",
                      page(2.5))
        self.assertNotIn("loosest bound", page(0.1))


class Draws(unittest.TestCase):
    def test_rows_are_joint_within_their_ranges_and_of_their_seed(self):
        rows = program.draw_rows({"b": 16, "n": 512}, 400, 1)
        self.assertEqual(rows, program.draw_rows({"b": 16, "n": 512}, 400, 1))
        self.assertNotEqual(rows, program.draw_rows({"b": 16, "n": 512}, 400, 2))
        for column, largest in ((0, 16), (1, 512)):
            sizes = [row[column] for row in rows]
            self.assertGreaterEqual(min(sizes), 1)
            self.assertLessEqual(max(sizes), largest)
        # Evenly by ratio: half of the lengths lie below the root.
        self.assertLess(abs(sum(row[1] < 23 for row in rows) / 400 - 0.5), 0.1)

    def test_a_model_that_was_measured_is_not_measured_again(self):
        calls = []

        def measure(name, *_):
            calls.append(name)
            return {"tuned": 1.0, "bounds": {}, "report": {}, "seconds": 2.0}
        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.object(program, "measure", measure), \
                contextlib.redirect_stderr(io.StringIO()):
            folder = pathlib.Path(folder)
            model = folder / "m.nir"
            model.write_text("a")
            effort = {"within": "1m", "bert": (3, 1)}

            def run(**options):
                return program.measured("bert", model, folder, effort,
                                        argparse.Namespace(threads=2, **options), 0)
            first = run(resume=True)
            self.assertEqual(run(resume=True), first)
            self.assertEqual(calls, ["bert"])
            run(resume=False)
            model.write_text("b")
            run(resume=True)
            effort["within"] = "2m"
            run(resume=True)
            self.assertEqual(len(calls), 4)
            with unittest.mock.patch("experiments.harness.machine.provenance",
                                     lambda _: {"commit": "another"}):
                run(resume=True)
            self.assertEqual(len(calls), 5)  # what another commit measured is no figure of this one

    def test_models_are_written_with_their_weights(self):
        with tempfile.TemporaryDirectory() as folder:
            for write in (models.write_bert, models.write_convolution):
                file = write(pathlib.Path(folder))
                text = file.read_text()
                header = pathlib.Path(f"{file}.safetensors").read_bytes()[:2000].decode(
                    "latin-1")
                for part in text.split('const("')[1:]:
                    self.assertIn(f'"{part.split(chr(34))[0]}"', header)

    def test_the_convolution_keeps_the_extents_of_its_image(self):
        with tempfile.TemporaryDirectory() as folder:
            file = models.write_convolution(pathlib.Path(folder))
            text = file.read_text()
            tensors = pathlib.Path(f"{file}.safetensors").read_bytes()
        header = json.loads(tensors[8:8 + int.from_bytes(tensors[:8], "little")])
        self.assertIn('layout = "nhwc"', text)  # so weights are rows, columns, channels, filters
        top, left, bottom, right = map(int, re.search(r"pads = \[(.*?)\]", text)[1].split(","))
        channels = int(re.search(r"%x: Tensor\[\(1, h, w, (\d+)\)", text)[1])
        self.assertEqual(header["kernel"]["shape"],
                         [top + bottom + 1, left + right + 1, channels, channels])


if __name__ == "__main__":
    unittest.main()
