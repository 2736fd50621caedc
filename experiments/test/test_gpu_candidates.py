"""Single kernels in many configurations (experiments/gpu/candidates.py)."""

import contextlib
import io
import itertools
import json
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.gpu import candidates, pack  # noqa: E402

MATMUL = {"unit": ["simt"], "block_rows": [4, 8, 16, 32], "block_columns": [16, 32, 64],
          "tile_rows": [1, 2, 4, 8], "tile_columns": [4, 8], "k_step": [16, 32, 64],
          "k_split": [1, 2, 4, 8], "stages": [2, 3, 4]}
WITH_GROUPS = {"unit": ["simt", "mma", "wgmma"], "block_rows": [4, 8, 16, 32, 64, 128],
               "block_columns": [16, 32, 64, 128], "tile_rows": [1, 2, 4, 8, 16, 32, 64],
               "tile_columns": [4, 8, 16, 32, 64, 128], "k_step": [16, 32, 64, 128, 256],
               "k_split": [1, 2, 4, 8, 16], "stages": [2, 3, 4]}
DEFAULT = {"unit": "simt", "block_rows": 16, "block_columns": 32, "tile_rows": 4,
           "tile_columns": 4, "k_step": 64, "k_split": 8, "stages": 4}


def row(kernel, config, ns, default=False):
    return {"kernel": kernel, "config": config, "default": default, "ns": ns}


class Programs(unittest.TestCase):
    def test_inputs_are_those_of_the_program(self):
        for kernel in candidates.kernels().values():
            parameters = re.search(r"fn @main\((.*)\) \{", kernel.text)[1]
            found = re.findall(r"%(\w+): Tensor\[\(([^)]*)\)", parameters)
            for size in kernel.sizes:
                arrays = kernel.inputs(size)
                self.assertEqual([name for name, _ in found], re.findall(
                    r'"(\w+)"', kernel.text.split("outputs")[0]))
                self.assertEqual(set(arrays), {name for name, _ in found})
                for name, dims in found:
                    wanted = [{"n": size, "b": 1}.get(d) or int(d) for d in dims.split(", ")]
                    self.assertEqual(list(arrays[name].shape), wanted, name)

    def test_weights_are_more_than_the_cache_holds(self):
        kernel = candidates.kernels()["product-768x768-residual-bf16"]
        count = len(re.findall(r"= matmul\(%xt, %w\d+\)", kernel.text))
        self.assertGreaterEqual(count * 768 * 768 * 2, candidates.CACHE_BYTES)


class Sampling(unittest.TestCase):
    def test_configurations_are_distinct_and_plausible(self):
        found = list(itertools.islice(candidates.sample(DEFAULT, MATMUL, 1), 60))
        self.assertEqual(len(found), 60)
        for i, config in enumerate(found):
            self.assertNotIn(config, [DEFAULT, *found[:i]])
            self.assertEqual(config.keys(), DEFAULT.keys())
            self.assertTrue(candidates.is_plausible(config))
            for name, value in config.items():
                self.assertIn(value, MATMUL[name])
        for name in ("block_rows", "block_columns", "k_split", "stages"):
            self.assertEqual({config[name] for config in found}, set(MATMUL[name]), name)

    def test_a_seed_gives_the_same_ones(self):
        first, second = (list(itertools.islice(candidates.sample(DEFAULT, MATMUL, "a"), 20))
                         for _ in range(2))
        self.assertEqual(first, second)

    def test_a_small_space_is_taken_whole(self):
        knobs = {"rows": [1, 2], "threads": [64, 128, 256]}
        default = {"rows": 1, "threads": 128}
        found = list(candidates.sample(default, knobs, 3))
        self.assertEqual(len(found), 5)
        self.assertNotIn(default, found)

    def test_groups_of_warps_are_tried_where_they_are_offered(self):
        self.assertEqual(candidates.groups_of_warps(DEFAULT, MATMUL), [])
        self.assertEqual(candidates.groups_of_warps({"threads": 32}, {"threads": [32]}), [])
        knobs = WITH_GROUPS
        found = candidates.groups_of_warps(DEFAULT, knobs)
        self.assertEqual(len(found), len(candidates.GROUP_SCHEDULES))
        for i, config in enumerate(found):
            self.assertNotIn(config, found[:i])
            self.assertEqual(config.keys(), DEFAULT.keys())
            self.assertTrue(candidates.is_plausible(config), config)
            for name, value in config.items():
                self.assertIn(value, knobs[name], name)
            # As the template asks for: whole products, and shared memory of an H100's block.
            self.assertEqual(config["k_step"] % (16 * config["k_split"]), 0)
            rows, columns = config["block_rows"], config["block_columns"]
            stages = (rows + columns) * config["k_step"] * 2 * config["stages"]
            sums = config["k_split"] * rows * (columns + 8) * 4
            self.assertLessEqual(stages + sums, 232448, config)
        drawn = itertools.islice(candidates.sample(found[0], knobs, 1), 200)
        self.assertIn("wgmma", {config["unit"] for config in drawn})
        both = candidates.groups_of_warps(
            DEFAULT, {**knobs, "unit": [*knobs["unit"], "wgmma-tma"]})
        self.assertEqual(both[:len(found)], found)
        self.assertEqual(both[len(found):], [{**config, "unit": "wgmma-tma"} for config in found])
        self.assertTrue(all(candidates.is_plausible(config) for config in both))
        self.assertFalse(candidates.is_plausible({**both[-1], "stages": 2}))

    def test_threads_of_a_product(self):
        self.assertTrue(candidates.is_plausible(DEFAULT))  # 4 * 8 * 8 threads
        self.assertFalse(candidates.is_plausible({**DEFAULT, "k_split": 1, "block_rows": 4}))
        self.assertFalse(candidates.is_plausible(
            {**DEFAULT, "unit": "mma", "k_split": 8, "block_columns": 64}))
        self.assertTrue(candidates.is_plausible({"threads": 32}))

    def test_units_are_those_of_the_template(self):
        kernels = pathlib.Path(__file__).resolve().parents[2] / "compiler/kernels"
        table = (kernels / "templates/gpu_matmul.h").read_text().split("kUnits[] =")[1]
        units = dict(re.findall(r'\{"([\w-]+)", UnitKind::(\w+),', table[:table.index("};")]))
        machine = (kernels / "kernel_ir.h").read_text()
        lanes, warps = (int(re.search(rf"\b{name} = (\d+)", machine)[1])
                        for name in ("kWarpLanes", "kGroupWarps"))
        threads = {"kScalar": 1, "kMatrix": lanes, "kGroup": warps * lanes}
        self.assertEqual(candidates.UNITS, {name: threads[kind] for name, kind in units.items()})
        self.assertEqual(candidates.GROUPS,
                         tuple(name for name, kind in units.items() if kind == "kGroup"))


class Compiler:
    """Refuses one configuration, behind the fixed ones."""

    def __init__(self, *_, **__):
        self.calls = 0

    def compile(self, *_):
        self.calls += 1
        refused = self.calls == 2 + len(candidates.GROUP_SCHEDULES)
        return {"status": "invalid argument" if refused else "ok"}

    def close(self):
        pass


class Packing(unittest.TestCase):
    def packed(self, knobs, most):
        kernel = next(iter(candidates.kernels().values()))
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stderr(io.StringIO()), \
                mock.patch.object(pack, "knobs_of", lambda *_: ("gpu_matmul", DEFAULT, knobs)), \
                mock.patch.object(pack.batch, "Compiler", Compiler), \
                mock.patch.object(pack.candidates, "kernels", lambda: {"a": kernel}):
            folder = pathlib.Path(name)
            pack.pack_candidates(folder, folder, most, "sm_90a", "x86-64-v3")
            return json.loads((folder / "candidates.json").read_text())

    def test_drawn_configurations_alone_are_counted(self):
        fixed = [DEFAULT, *candidates.groups_of_warps(DEFAULT, WITH_GROUPS)]
        for most in (1, 24):
            rows = self.packed(WITH_GROUPS, most)
            found = [row["config"] for row in rows]
            self.assertEqual(found[:len(fixed)], fixed)
            self.assertEqual(len(found), len(fixed) + most)
            for i, config in enumerate(found):
                self.assertNotIn(config, found[:i])
            self.assertEqual([row["default"] for row in rows], [True] + [False] * (len(rows) - 1))
        self.assertEqual(len(self.packed(MATMUL, 24)), 1 + 24)


class Tables(unittest.TestCase):
    ROWS = [row("a", {"x": 1}, {"19": 100.0, "53": 100.0}, True),
            row("a", {"x": 2}, {"19": 50.0, "53": 200.0}),
            row("a", {"x": 3}, {"19": 80.0, "53": 80.0}),
            {**row("a", {"x": 4}, {}), "problem": "WRONG: y"}]

    def test_times_of_a_profile(self):
        profile = {"kernels": [
            {"name": "k1_matmul", "config": '{"x":1}', "count": 2, "total_ns": 30},
            {"name": "k1_matmul", "config": '{"x":1}', "count": 1, "total_ns": 30},
            {"name": "k1_matmul", "config": '{"x":2}', "count": 1, "total_ns": 1},
            {"name": "k2_sum", "config": '{"x":1}', "count": 1, "total_ns": 5}]}
        self.assertEqual(candidates.kernel_ns(profile, "_matmul", {"x": 1}), 20)
        self.assertIsNone(candidates.kernel_ns(profile, "_matmul", {"x": 3}))

    def test_each_size_has_its_order(self):
        found = candidates.ranking(self.ROWS)["a"]
        self.assertEqual([r["config"]["x"] for r in found["19"]], [2, 3, 1])
        self.assertEqual([r["config"]["x"] for r in found["53"]], [3, 1, 2])
        self.assertEqual([r["ratio"] for r in found["53"]], [0.8, 1.0, 2.0])

    def test_one_for_all_sizes(self):
        found = candidates.joint(self.ROWS)["a"]
        self.assertEqual([r["config"]["x"] for r in found], [3, 1, 2])
        self.assertAlmostEqual(found[0]["ratio"], 0.8)
        self.assertAlmostEqual(found[2]["ratio"], 1.0)

    def test_the_page_has_the_best_and_the_default(self):
        text = "\n".join(candidates.lines(self.ROWS, most=1))
        self.assertIn("| 19 | 0.1 | 0.50 | x 2 |", text)
        self.assertIn("| 19 | 0.1 | 1.00 | the default |", text)
        self.assertIn("1 of 4 candidates failed", text)
        self.assertIn("WRONG: y", text)

    def test_the_page_has_the_best_group_of_warps(self):
        rows = [row("a", {"unit": "mma", "x": x}, {"19": 100.0 + x}, x == 1) for x in range(4)]
        rows += [row("a", {"unit": "wgmma", "x": x}, {"19": 200.0 + x}) for x in (1, 2)]
        text = "\n".join(candidates.lines(rows, most=1))
        self.assertIn("| unit wgmma |", text)
        self.assertNotIn("| unit wgmma, x 2 |", text)
        rows += [row("a", {"unit": "wgmma-tma", "x": x}, {"19": 300.0 + x}) for x in (1, 2)]
        text = "\n".join(candidates.lines(rows, most=1))
        self.assertIn("| unit wgmma |", text)
        self.assertIn("| unit wgmma-tma |", text)
        self.assertNotIn("| unit wgmma-tma, x 2 |", text)


if __name__ == "__main__":
    unittest.main()
