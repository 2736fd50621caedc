"""Tests of the roofline study's counts and of what it says of them, with numpy alone."""

import contextlib
import io
import re
import unittest

from experiments.harness.errors import ExperimentError
from experiments.harness.experiment import ROOT
from experiments.roofline import program, tables, work

DENSE = """fn @group(%p0: Tensor[(s0, 384), f32], %p1: Tensor[(32, 384, 48), f32], %p2: Tensor[(1536), f32]) -> Tensor[(s0, 1536), f32] {
  let %t0: Tensor[(s0, 1536), f32] = packed_matmul(%p0, %p1) {k = 384, layout = "panel48", n = 1536};
  let %t1: Tensor[(s0, 1536), f32] = add(%t0, %p2);
  let %t2: Tensor[(s0, 1536), f32] = gelu(%t1);
  %t2
}
"""
ATTENTION = """fn @group(%p0: Tensor[(s0, s1, 1152), f32], %p1: Tensor[(s0, 1, 1, s1), f32]) -> Tensor[(s0, s1, 384), f32] {
  let %t0: Tensor[(s0, s1, 384), f32] = slice(%p0) {axes = [2], ends = (384), starts = (0), steps = (1)};
  let %t1: Tensor[(s0, s1 + 2, 384), f32] = slice(%p0) {axes = [2], ends = (768), starts = (384), steps = (1)};
  let %t3: Tensor[(s0, s1, 384), f32] = attention(%t0, %t1, %t1, %p1) {heads = 12, scale = 0.17};
  %t3
}
"""
SCORES = """fn @group(%p0: Tensor[(s0, 64, max(s1, 8)), f32], %p1: Tensor[(s0, 64, s1), f32]) -> Tensor[(s0, s1, s1), f32] {
  let %t0: Tensor[(s0, max(s1, 8), s1), f32] = matmul(%p0, %p1) {transpose_a = true, transpose_b = false};
  %t0
}
"""
EMBEDDING = """fn @group(%p0: Tensor[(30522, 384), f32], %p1: Tensor[(s0), i64], %p2: Tensor[(384), bf16], %p3: Tensor[(), f32]) -> Tensor[(s0, 384), f32] {
  let %t0: Tensor[(s0, 384), f32] = gather(%p0, %p1) {axis = 0};
  let %t1: Tensor[(s0, 384), f32] = layer_norm(%t0, %p2) {axis = 1};
  %t1
}
"""


def entry(name, source, workload, *templates):
    return {"name": name, "source": source, "workload": workload,
            "implementations": [{"template": template} for template in templates]}


def kernels():
    return work.read({"kernels": [
        entry("k0", "packed_matmul+add+gelu", DENSE, "vendor", "dense"),
        entry("k1", "slice+slice+attention", ATTENTION, "attention"),
        entry("k2", "matmul", SCORES, "batch_matmul"),
        entry("k3", "gather+layer_norm", EMBEDDING, "reduce"),
        entry("k4", "cast", "", "elementwise")]})


def call(name, us, count=2, **shape):
    return {"name": name, "count": count, "total_ns": us * 1e3, "shape": shape}


def profile(*calls, wall_us=1000.0, runs=2):
    return {"runs": runs, "wall_ns": wall_us * 1e3, "kernels": list(calls),
            "kernel_ns": sum(c["total_ns"] for c in calls)}


class Work(unittest.TestCase):
    def test_each_template_of_the_compiler_has_a_class(self):
        rows = (ROOT / "compiler" / "kernels" / "Templates.def").read_text(encoding="utf-8")
        names = re.findall(r'^NIMBLE_(?:PITCH_)?TEMPLATE\(\w+, "(\w+)"\)', rows, re.MULTILINE)
        self.assertEqual(sorted(names), sorted([*work.TEMPLATES, *work.OTHERS]))
        self.assertEqual({work.TEMPLATES[n] for n in names if "conv" in n or "depthwise" in n},
                         {"products"})

    def test_extents(self):
        symbols = {"s0": 7, "s1": 20}
        for text, value in (("12", 12), ("s0", 7), ("2*s0 + 1", 15), ("-1 + s1", 19),
                            ("floordiv(s1 + 7, 8)", 3), ("mod(s1, 8)", 4), ("max(s0, s1)", 20),
                            ("broadcast(1, s0)", 7), ("broadcast(s0, 1)", 7)):
            self.assertEqual(work.extent(text, symbols), value, text)
        for text in ("s2", "s0 / 2", "open(s0)", "?"):
            with self.assertRaises(ExperimentError):
                work.extent(text, symbols)

    def test_dims_part_at_commas_outside_of_brackets(self):
        self.assertEqual(work.dims_of("floordiv(s0, 8), 3"), ("floordiv(s0, 8)", "3"))
        self.assertEqual(work.dims_of(""), ())

    def test_classes_and_labels(self):
        self.assertEqual({name: (k.kind, k.label) for name, k in kernels().items()}, {
            "k0": ("products", "packed_matmul+add+gelu k=384 n=1536"),
            "k1": ("attention", "slice+slice+attention"), "k2": ("attention", "matmul"),
            "k3": ("normalisation", "gather+layer_norm"), "k4": ("element-wise", "cast")})

    def test_operations_are_those_of_products_and_attention(self):
        found, at = kernels(), {"s0": 3, "s1": 10}
        self.assertEqual(found["k0"].flops(at), 2 * 3 * 384 * 1536)
        self.assertEqual(found["k1"].flops(at), 4 * 12 * 3 * 10 * 384)  # keys × results
        self.assertEqual(found["k2"].flops(at), 2 * 64 * 3 * 10 * 10)  # sums over rows of the first
        self.assertEqual((found["k3"].flops(at), found["k4"].flops(at)), (0, 0))

    def test_constants_are_operands_of_fixed_extents_and_rows_of_tables(self):
        found, at = kernels(), {"s0": 3, "s1": 10}
        self.assertEqual(found["k0"].constant_bytes(at), 4 * (384 * 1536 + 1536))
        self.assertEqual(found["k1"].constant_bytes(at), 0)
        self.assertEqual(found["k3"].constant_bytes(at), 4 * 3 * 384 + 2 * 384)

    def test_an_account_is_of_one_run(self):
        found = work.account(kernels(), profile(
            call("k0", 400, 4, s0=5), call("k0", 200, 2, s0=6), call("k1", 100, s0=1, s1=8),
            call("k3", 50, s0=8), call("k4", 30)))
        self.assertEqual(found["us"], {"products": 300, "attention": 50, "normalisation": 25,
                                       "element-wise": 15, "other": 110})
        self.assertEqual(found["wall_us"], 500)
        self.assertEqual(found["flops"]["products"], 2 * 384 * 1536 * (2 * 5 + 6))
        row = found["workloads"]["packed_matmul+add+gelu k=384 n=1536"]
        self.assertEqual((row["calls"], row["us"]), (3, 300))
        self.assertEqual(found["bytes"], 3 * 4 * (384 + 1) * 1536 + 4 * 8 * 384 + 2 * 384)

    def test_a_product_that_counts_for_nothing_is_an_error(self):
        strange = work.read({"kernels": [entry("k9", "outer", "", "dense")]})
        with self.assertRaisesRegex(ExperimentError, "k9 .outer. is of products"):
            work.account(strange, profile(call("k9", 1)))


def account(us, flops=1e6, size=100, label="w k=1 n=2"):
    parts = dict.fromkeys(tables.PARTS, 0.0)
    parts.update(products=us * 0.8, attention=us * 0.1, other=us * 0.1)
    return {"wall_us": us, "flops": {"products": flops, "attention": flops / 4, "normalisation": 0,
                                     "element-wise": 0}, "bytes": size, "us": parts,
            "workloads": {label: {"kind": "products", "calls": 3.0, "us": us * 0.8, "flops": flops},
                          "cast": {"kind": "element-wise", "calls": 1.0, "us": 1.0, "flops": 0}}}


def row(length, tuned, default, size=100):
    return {"length": length, "rounds": {"tuned": [tuned] * 3, "default": [default] * 3},
            "accounts": {"tuned": [account(tuned * f, size=size) for f in (1, 0.9, 1.5)],
                         "default": [account(default, size=size)]}}


ROOF = {"flops": 1e10, "bytes": 1e6}


class Tables(unittest.TestCase):
    def test_roofs_are_the_most_of_all_measurements(self):
        def ceilings(flops, size):
            return {"ceilings": [
                {"kind": "compute", "dtype": "f32", "threads": 1, "value": flops},
                {"kind": "compute", "dtype": "f64", "threads": 1, "value": 1e15},
                {"kind": "compute", "dtype": "f32", "threads": 2, "value": 1e15},
                {"kind": "read_memory", "dtype": "any", "threads": 1, "value": size},
                {"kind": "read_l3", "dtype": "any", "threads": 1, "value": 1e15}]}
        found = tables.roofs([ceilings(5, 30), ceilings(7, 20)], 1)
        self.assertEqual(found, {"flops": 7, "bytes": 30,
                                 "measured": {"flops": [5, 7], "bytes": [30, 20]}})

    def test_last_cache(self):
        self.assertEqual(tables.last_cache({"L1 Data": "32K", "L3 Unified": "32M"}), 32 << 20)
        self.assertEqual(tables.last_cache({}), 0)

    def test_limits_and_shares(self):
        found = tables.summarise(row(64, 200.0, 220.0), ROOF, 100)
        self.assertAlmostEqual(found["arithmetic_us"], 125)
        self.assertIsNone(found["memory_us"])  # the cache holds the constants
        self.assertAlmostEqual(found["of_arithmetic"], 0.625)
        self.assertAlmostEqual(found["of_larger"], 0.625)
        self.assertAlmostEqual(found["speed_up"]["value"], 1.1)
        self.assertAlmostEqual(sum(found["split"].values()), 1)
        self.assertAlmostEqual(found["beyond"]["products"], (160 - 100) / 200)
        self.assertAlmostEqual(found["beyond"]["other"], 0.1)
        self.assertAlmostEqual(sum(found["beyond"].values()), 1 - 0.625)
        self.assertAlmostEqual(found["of_peak"]["products"], 1e6 / 160e-6 / 1e10)
        beyond = tables.summarise(row(64, 200.0, 220.0, size=150), ROOF, 100)
        self.assertAlmostEqual(beyond["memory_us"], 150)
        self.assertAlmostEqual(beyond["of_larger"], 0.75)

    def test_without_tuned_ones_the_default_is_what_is_told(self):
        only = row(64, 1.0, 250.0)
        for part in ("rounds", "accounts"):
            del only[part]["tuned"]
        found = tables.summarise(only, ROOF, 100)
        self.assertIsNone(found["speed_up"])
        self.assertAlmostEqual(found["of_arithmetic"], 0.5)
        self.assertIsNone(tables.workloads([found], ROOF)[0]["speed_up"])

    def test_workloads_are_those_that_count(self):
        rows = [tables.summarise(row(length, 100.0, default), ROOF, 100)
                for length, default in ((16, 100.0), (120, 121.0))]
        found = tables.workloads(rows, ROOF)
        self.assertEqual([w["label"] for w in found], ["w k=1 n=2"])
        self.assertEqual(found[0]["length"], 120)  # the nearest to what is shown
        self.assertAlmostEqual(found[0]["speed_up"], 1.1)
        self.assertAlmostEqual(found[0]["least"], 1)
        self.assertAlmostEqual(found[0]["most"], 1.21)

    def case(self, tuned):
        rows = [tables.summarise(row(length, us, us), ROOF, 100)
                for length, us in ((16, 500.0), (64, tuned), (67, 130.0))]
        return {"title": "M", "threads": 2, "lengths": rows, "tuning": None,
                "workloads": tables.workloads(rows, ROOF)}

    def test_bars_ask_for_the_least_share_of_long_inputs(self):
        bar, = tables.bars([self.case(156.0)], False)
        self.assertAlmostEqual(bar["value"], 125 / 156)
        self.assertTrue(bar["kept"])
        self.assertFalse(tables.bars([self.case(157.0)], False)[0]["kept"])
        self.assertFalse(tables.bars([self.case(156.0)], True)[0]["kept"])
        short = self.case(156.0)
        short["lengths"] = short["lengths"][:1]
        self.assertEqual(tables.bars([short], False), [])

    def test_limits_that_cannot_be_are_doubted(self):
        case = self.case(156.0)
        self.assertEqual(tables.doubts({"1": {"flops": 5e9}, "2": ROOF}, [case]), [])
        self.assertEqual(tables.doubts({"10": {"flops": 1e9}, "2": ROOF}, []), [
            "the peak at 10 threads, 1.0 GFLOP/s, is below that at 2, 10.0"])
        case["lengths"][1]["of_peak"]["products"] = 1.06
        self.assertEqual(tables.doubts({"2": ROOF}, [case]), [
            "products of M, 2 threads reach 106 % of the peak"])

    def test_the_page(self):
        case = self.case(156.0)
        case["tuning"] = {"outcomes": {"tuned": 3, "untuned": 1}, "threads": [1, 2]}
        text = tables.markdown({
            "machine": {"cpu": "c"}, "last_cache": 32 << 20, "cases": [case],
            "roofs": {"2": {**ROOF, "measured": {"flops": [1e10], "bytes": [1e6]}}},
            "doubts": ["a", "b"], "bars": tables.bars([case], False)})
        self.assertIn("## M, 2 threads\n\nKernels by what the database has of them: 3 tuned, 1 "
                      "untuned; tables for 1, 2 threads.", text)
        self.assertIn("| 64 | 0.16 | 0.12 | - | 80.1 % | 80.1 % | 1.000 (1.000 – 1.000) |", text)
        self.assertIn("| 64 | 80.0 % (15.9 %) | 10.0 % (-6.0 %) | 0.0 % | 0.0 % | 10.0 % | 19.9 % |",
                      text)
        self.assertIn("| M, 2 threads: w k=1 n=2 | 67 | 3 |", text)
        self.assertIn("no bar counts as kept: a; b.", text)
        self.assertIn("from 64 tokens on: 80.1 %, at least 80 %: kept", text)


class Program(unittest.TestCase):
    def test_arguments(self):
        options = program.parse_arguments(["--threads", "2", "--models", "minilm", "--within", "6m"])
        self.assertEqual((options.threads, options.names), ([2], ["minilm"]))
        for wrong in (["--threads", "0"], ["--lengths", "3,3"], ["--models", "gpt"],
                      ["--tune", "5m", "--untuned"], ["--within", "soon"]):
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
                program.parse_arguments(wrong)
            self.assertEqual(ended.exception.code, 2)

    def test_a_length_gathers_rounds_and_profiles_of_each_pass(self):
        class Worker:
            profiled = []

            def ask(self, method, length, *counts):
                if method == "burst":
                    return [2_000_000] * counts[1]  # ns
                self.profiled.append((length, *counts))
                return profile(call("k4", 600), runs=counts[0])
        workers, found = {"tuned": Worker(), "default": Worker()}, {"rounds": {}, "accounts": {}}
        both = dict.fromkeys(workers, kernels())
        for _ in range(2):
            program.measure_once(workers, both, 7, {"rounds": 3, "burst_us": 10_000}, found)
        self.assertEqual(found["rounds"], dict.fromkeys(workers, [2000.0] * 6))
        self.assertEqual(Worker.profiled, [(7, 15)] * 4)  # of 30 ms
        self.assertEqual([len(a) for a in found["accounts"].values()], [2, 2])
        self.assertEqual(found["accounts"]["tuned"][0]["us"]["element-wise"], 600 / 15)

    def test_what_is_missing_is_told_by_the_products(self):
        def report(outcome, template="dense"):
            return {"kernels": [{"outcome": outcome, "template": template, "threads": [2]},
                                {"outcome": "tuned", "template": "reduce", "threads": [1, 2]}]}
        for outcome, missing in (("tuned", [1]), ("stale", [1]), ("untuned", [1, 2])):
            self.assertEqual(program.without_tables(report(outcome), [1, 2]), missing)
        self.assertEqual(program.without_tables(report("tuned"), [2]), [])
        self.assertEqual(program.without_tables(report("tuned", "elementwise"), [2]), [2])
        self.assertEqual(program.without_tables(None, [2]), [2])
        self.assertEqual(program.tuning_of(report("untuned")),
                         {"outcomes": {"untuned": 1, "tuned": 1}, "threads": [1, 2]})


if __name__ == "__main__":
    unittest.main()
