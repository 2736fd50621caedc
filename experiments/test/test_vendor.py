"""Tests of the comparison with a vendor's routines, with numpy alone and a database of paper."""

import contextlib
import io
import pathlib
import tempfile
import types
import unittest
import unittest.mock

import numpy as np

from experiments.harness.errors import WRONG_RESULT, ExperimentError
from experiments.roofline import work
from experiments.test.fakes import FakePool
from experiments.vendor import models, program, records, tables
from experiments.vendor.records import MIXED, OWN, VENDOR

ROUTINE = '{"routine":"onednn.matmul"}'
DENSE = """fn @group(%p0: Tensor[(s0, 8), f32], %p1: Tensor[(1, 8, 32), f32]) -> Tensor[(s0, 16), f32] {
  let %t0: Tensor[(s0, 16), f32] = packed_matmul(%p0, %p1) {k = 8, layout = "panel32", n = 16};
  %t0
}
"""


def row(shape, template, config, ns, n=10):
    return {"shape": shape, "template": template, "config": config, "median_ns": ns, "n": n}


def rows():
    """Two of nimble's configurations and the routine at three shapes; the routine is faster at the
    largest. The last stage measured one of them again."""
    found = [row(f"s0={n}", "dense", config, ns) for config, times in (
        ('{"tile":4}', (10, 40, 90)), ('{"tile":8}', (20, 20, 80))) for n, ns in
        zip((1, 16, 64), times)]
    found += [row(f"s0={n}", "vendor", ROUTINE, ns) for n, ns in zip((1, 16, 64), (30, 25, 60))]
    return [row("s0=16", "vendor", ROUTINE, 22, 99), *found]


def table():
    return {"table": "t1", "workload": "w1", "label": "dense", "entries": [
        {"range": {"s0": [1, 15]}, "config": "c4", "template": "dense", "knobs": {"tile": 4}},
        {"range": {"s0": [16, None]}, "config": "cv", "template": "vendor",
         "knobs": {"routine": "onednn.matmul"}}]}


class Programs:
    """Answers like studies/programs.py."""

    def __init__(self, tables, rows, trials=()):
        self.tables, self.rows, self.trials, self.called = tables, rows, trials, []

    def call_json(self, study, command):
        if command[:2] == ["nimble-dispatch", "show"]:
            return self.tables
        if command[:3] == ["nimble-db", "show", "workloads"]:
            return [{"hash": "w1", "workload": "dense text args=[1]", "threads": 1},
                    {"hash": "w2", "workload": "dense text and more args=[]", "threads": 1}]
        if command[:2] == ["nimble-db", "top"]:
            return self.rows[command[command.index("--workload") + 1]]
        return list(self.trials)

    def call(self, study, command):
        self.called.append(command)

    def fresh(self, path):
        for old in path.parent.glob(f"{path.name}*"):
            old.unlink()
        return path


TRIALS = [{"config": config, "configuration": hash} for config, hash in
          (('{"tile":4}', "c4"), ('{"tile":8}', "c8"), (ROUTINE, "cv"))]
PLAIN = {"table": "t2", "workload": "w2", "label": "plain", "entries": []}


class Records(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def database(self, found=None, trials=TRIALS):
        path = self.folder / "tuned.db"
        path.write_text("records")
        path.with_name("tuned.db-wal").write_text("more")
        programs = Programs([table(), PLAIN], {"w1": found or rows(), "w2": [
            row("s0=1", "dense", '{"tile":4}', 10)]}, trials)
        return records.Database(path, {"campaign": "x"}, programs), programs

    def test_regions(self):
        at = records.symbols_of("s0=17,s1=4")
        self.assertEqual(at, {"s0": 17, "s1": 4})
        for region, inside in (({}, True), ({"s0": [17, 64]}, True), ({"s0": [18, None]}, False),
                               ({"s0*s1": [68, 68]}, True), ({"ceildiv(s0,8)": [0, 2]}, False),
                               ({"mod(s0,8)": [1, 1], "s1": [0, None]}, True)):
            self.assertEqual(records.lies_in(region, at), inside, region)
        self.assertEqual(work.extent("ceildiv(s0,8)", {"s0": 16}), 2)

    def test_sizes_that_are_met(self):
        kernels = {"kernels": [{"name": "k0", "workload": "a"}, {"name": "k1", "workload": "b"}]}

        def call(name, **shape):
            return {"name": name, "shape": shape}
        found = records.met_sizes(kernels, [
            {"kernels": [call("k0", s0=5, s1=7), call("k1")]},
            {"kernels": [call("k0", s0=5, s1=7), call("k0", s0=7, s1=5)]}])
        self.assertEqual(found, {"a": [{"s0": 5, "s1": 7}, {"s0": 7, "s1": 5}], "b": [{}]})
        self.assertEqual([records.region_words(symbols) for symbols in (found["a"][0], {})],
                         [["--region", "s0=5", "--region", "s1=7"], ["--region", "all"]])

    def test_tuning_meets_what_is_run(self):
        path = self.folder / "sizes.tsv"
        words = models.MODELS["minilm"].sizes(path)
        self.assertEqual(words, ["--fix", "b=1", "--trace", f"{path}:n"])
        self.assertEqual(path.read_text().split(), ["n", "53", "19", "37", "64", "103"])
        words = models.MODELS["resnet-50"].sizes(path)
        self.assertEqual(words, ["--trace", f"{path}:h,w"])
        self.assertEqual(path.read_text().splitlines()[:2], ["h\tw", "224\t224"])

    def test_both_sides_at_each_shape(self):
        found = {one["shape"]: (one["own_ns"], one["vendor_ns"]) for one in records.compare(rows())}
        self.assertEqual(found, {"s0=1": (10, 30), "s0=16": (20, 22), "s0=64": (80, 60)})
        self.assertEqual(records.compare([one for one in rows() if one["template"] == "dense"]), [])

    def test_the_best_of_a_side_is_of_the_region(self):
        self.assertEqual(records.best(rows(), {"s0": [1, 8]}, False), '{"tile":4}')
        self.assertEqual(records.best(rows(), {"s0": [16, None]}, False), '{"tile":8}')
        self.assertEqual(records.best(rows(), {"s0": [500, 600]}, False), '{"tile":8}')  # of all
        self.assertEqual(records.best(rows(), {}, True), ROUTINE)
        self.assertIsNone(records.best([rows()[1]], {}, True))
        # One that was measured at a single shape, and is fast there, tells nothing of the others.
        lucky = [*rows(), row("s0=16", "dense", '{"tile":1}', 1)]
        self.assertEqual(records.best(lucky, {"s0": [16, None]}, False), '{"tile":8}')

    def test_builds_decide_otherwise_where_they_have_to(self):
        found, _ = self.database()
        met = {"dense text": [{"s0": 53}, {"s0": 9}], "dense text and more": [{"s0": 1}]}
        self.assertEqual(found.overrides(OWN, {}), [("t1", ["--entry", "1"], "c8")])
        self.assertEqual(found.overrides(VENDOR, met), [("t1", ["--region", "s0=53"], "cv"),
                                                        ("t1", ["--region", "s0=9"], "cv")])
        self.assertEqual(found.overrides(VENDOR, {}), [])
        self.assertEqual([one["table"] for one in found.served()], ["t1"])
        self.assertEqual(found.summary(), [{
            "workload": "w1", "label": "dense", "entries": 2, "vendor_entries": 1, "shapes": 3,
            "vendor_faster": 1, "ratio": found.summary()[0]["ratio"]}])
        self.assertAlmostEqual(found.summary()[0]["ratio"], (3 * 1.1 * 0.75) ** (1 / 3))

    def test_a_copy_has_all_and_the_overrides(self):
        found, programs = self.database()
        path, changed, missing = found.copy(OWN, self.folder / "own.db")
        self.assertEqual((changed, missing), (1, 0))
        self.assertEqual((self.folder / "own.db-wal").read_text(), "more")
        self.assertEqual(programs.called[0][:7], ["nimble-dispatch", "override", "t1", "--entry",
                                                  "1", "--config", "c8"])
        self.assertEqual(programs.called[0][-2:], ["--db", path])
        self.assertEqual(found.copy(MIXED, self.folder / "mixed.db")[1:], (0, 0))
        self.assertEqual(len(programs.called), 1)

    def test_a_configuration_that_cannot_be_named_stays(self):
        twice = [*TRIALS, {"config": '{"tile":8}', "configuration": "of another template"}]
        found, programs = self.database(trials=twice)
        self.assertEqual(found.copy(OWN, self.folder / "own.db")[1:], (0, 1))
        self.assertEqual(programs.called, [])


def profile(us, implementation, count=2):
    return {"runs": 2, "kernels": [
        {"name": "k0", "count": 2 * count, "total_ns": 2000 * us, "shape": {"s0": 53},
         "implementation": implementation}]}


def inspected(*kinds):
    return {"kernels": [{"name": "k0", "source": "packed_matmul", "workload": DENSE,
                         "implementations": [{"kind": kind, "symbol": f"{kind}_0",
                                              "template": "dense"} for kind in kinds]}]}


def calls(own, vendor, mixed):
    """What compare_calls takes: µs of each pass; `mixed` (µs, whether the tables have a routine)."""
    native, routine = (tables.kernels_of(inspected(kind)) for kind in ("native", "vendor"))
    chosen = routine if mixed[1] else native
    kind = "vendor_0" if mixed[1] else "native_0"
    return {OWN: [tables.calls_of(native, profile(us, "native_0")) for us in own],
            VENDOR: [tables.calls_of(routine, profile(us, "vendor_0")) for us in vendor],
            MIXED: [tables.calls_of(chosen, profile(us, kind)) for us in [mixed[0]] * len(own)]}


def case(own=(10, 10, 10), vendor=(20, 20, 20), mixed=(10, False), whole=(100.0, 100.0, 120.0)):
    measured = [{"shape": (("b", 1), ("n", 53)),
                 "rounds": {kind: [us] * 3 for kind, us in zip((MIXED, OWN, VENDOR), whole)},
                 "calls": calls(own, vendor, mixed)}]
    return {"name": "minilm-f32", "title": "MiniLM, f32", "tuned_s": 60.0, "tables": 4,
            "changes": {OWN: {"changed": 1, "missing": 0}, VENDOR: {"changed": 1, "missing": 1}},
            "refused": tables.refusals({"workloads": [
                {"no_vendor": "no such"}, {"vendor": {"sizes": 3}},
                {"no_vendor": "no such", "vendor": {"sizes": 0}},
                {"no_vendor": "nothing at one size", "vendor": {"sizes": 2}}]}),
            "searched": [{"shapes": 7, "vendor_faster": 2}], **tables.summarise(measured)}


class Tables(unittest.TestCase):
    def kept(self, *cases):
        return [bar["kept"] for bar in tables.bars(cases)]

    def test_rows_are_of_one_run_and_name_the_kernel(self):
        (one,) = case()["entries"][0]["rows"]
        self.assertEqual((one["label"], one["shape"]), ("packed_matmul k=8 n=16", "s0 = 53"))
        self.assertEqual((one["calls"], one["own_us"], one["vendor_us"], one["ratio"]),
                         (2, 10, 20, 2))

    def test_who_wins(self):
        self.assertEqual(tables.winner(case()["entries"][0]["rows"][0]), OWN)
        self.assertEqual(tables.winner(case(vendor=(5, 5, 5))["entries"][0]["rows"][0]), VENDOR)
        self.assertIsNone(tables.winner(case(vendor=(8, 10, 12))["entries"][0]["rows"][0]))
        found = case(vendor=(5, 5, 5), mixed=(6, True))["all"]
        self.assertEqual((found["own_wins"], found["vendor_wins"], found["vendor_by"]), (0, 1, 2))
        self.assertEqual((found["vendor_chosen"], found["over"], found["chosen_over"]),
                         (1, 0.5, 1.2))
        self.assertIsNone(found["own_by"])

    def test_a_kernel_that_no_routine_serves_is_not_compared(self):
        found = calls((10,) * 3, (20,) * 3, (10, False))
        found[VENDOR] = found[OWN]
        self.assertEqual(tables.compare_calls(found), [])

    def test_bars(self):
        self.assertEqual(self.kept(case()), [True] * 4)
        self.assertEqual(self.kept(case(vendor=(9, 9, 9))), [True, False, False, True])
        self.assertEqual(self.kept(case(vendor=(9, 9, 9), mixed=(9, True))),
                         [True, False, True, True])
        self.assertEqual(self.kept(case(mixed=(11, False))), [True, True, False, True])
        self.assertEqual(self.kept(case(whole=(100.0, 97.0, 100.0))), [True, True, True, False])
        self.assertEqual(self.kept({"title": "x", "failure": "gone"}), [False] * 4)
        nothing = calls((10,) * 3, (20,) * 3, (10, False))
        nothing[VENDOR] = nothing[OWN]
        empty = tables.summarise([{"shape": (("n", 3),), "calls": nothing,
                                   "rounds": {MIXED: [1.0], OWN: [1.0], VENDOR: [1.0]}}])
        self.assertEqual(self.kept({"title": "x", **empty}), [False] * 4)

    def test_the_page(self):
        found = [case(), {"name": "minilm-bf16", "title": "MiniLM, bf16", "failure": "no table"}]
        text = tables.markdown({"machine": {"cpu": "c"}, "threads": 2, "models": found,
                                "left_out": ["bert-base-bf16"], "bars": tables.bars(found)})
        for part in ("| MiniLM, f32 | 1 | 1 | 2.00 | 0 | – | 2.00 | 0 | 1.00 | 1.000 |",
                     "| n = 53 | 0.100 | 0.100 | 0.120 | 1.000 (1.000 – 1.000) | 10 % |",
                     "| packed_matmul k=8 n=16 | 1 | 1 | 0 | 2.00 | 2.00 | 2.00 | 0 |",
                     "measured both sides at 7 shapes, and the routine was faster at 2 of them",
                     "No routine took part elsewhere: no such (2).", "For 1 entries of tables there was no configuration of the other side",
                     "- MiniLM, bf16: no table", "Not measured: BERT-base, bf16, whose type",
                     "MiniLM, bf16: oneDNN's time over nimble's, of all of them: –, at least 1: not"):
            self.assertIn(part, text)


class FakeWorker:
    """Answers like pool.Worker. us: of a run; wrong: the share that its result is wrong by."""

    def __init__(self, kind, us, wrong=0.0):
        self.kind, self.us, self.wrong = kind, us, wrong

    def ask(self, method, *arguments):
        if method == "check":
            return np.array([1.0, -2.0]) + 2 * self.wrong
        if method == "profile":
            return profile(self.us, "vendor_0" if self.kind == VENDOR else "native_0")
        return [1000 * self.us] * arguments[2]

    def close(self):
        pass


class Running(unittest.TestCase):
    def measure(self, effort=program.QUICK, seconds=1e6, **wrong):
        made = {kind: FakeWorker(kind, us, wrong.get(kind, 0.0))
                for kind, us in ((MIXED, 100), (OWN, 100), (VENDOR, 200))}
        files = {kind: kind for kind in made}
        kinds = {MIXED: "native", OWN: "native", VENDOR: "vendor"}
        with unittest.mock.patch("experiments.harness.pool.Pool", lambda: FakePool(made)), \
                unittest.mock.patch("experiments.studies.programs.call_json",
                                    lambda _, words: inspected(kinds[words[-1]])):
            return program.measure("minilm-f32", files, 1, effort, seconds)

    def test_passes_go_over_all_shapes(self):
        found = self.measure()
        self.assertEqual([one["shape"] for one in found], list(models.MODELS["minilm"].shapes))
        for one in found:
            self.assertEqual({kind: len(times) for kind, times in one["rounds"].items()},
                             dict.fromkeys((MIXED, OWN, VENDOR), program.QUICK["passes"]))
        summary = tables.summarise(found)
        self.assertEqual(summary["all"]["compared"], 5)
        self.assertEqual(summary["all"]["over"], 2)

    def test_time_bounds_the_passes_but_not_below_some(self):
        found = self.measure({**program.FULL, "passes": 50}, seconds=0.0)
        self.assertEqual(len(found[0]["rounds"][OWN]), program.QUICK["passes"])

    def test_a_build_that_is_wrong_ends_the_case(self):
        with self.assertRaisesRegex(ExperimentError, "n = 53: the build with vendor") as caught:
            self.measure(**{VENDOR: 1e-3})
        self.assertEqual(caught.exception.code, WRONG_RESULT)
        self.measure(**{VENDOR: 5e-5})

    def test_a_case_that_failed_is_told_and_is_tried_again(self):
        options = types.SimpleNamespace(resume=True, threads=1, names=["minilm-f32"])
        tried = []

        def study(name, *_):
            tried.append(name)
            if len(tried) == 1:
                raise ExperimentError("no database")
            return {"name": name, "seconds": 9.0}
        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.object(program, "study", study), \
                contextlib.redirect_stderr(io.StringIO()):
            found = [program.studied("minilm-f32", pathlib.Path(folder), {}, options, 9.0)
                     for _ in range(3)]
        self.assertEqual(found[0]["failure"], "no database")
        self.assertEqual(found[1], found[2])  # kept
        self.assertEqual(len(tried), 2)

    def test_arguments(self):
        for features, count in (({"avx2", "amx_bf16"}, 8), ({"avx2", "avx512f"}, 4)):
            with unittest.mock.patch("experiments.harness.machine.flags",
                                     return_value=features):
                names = program.parse_arguments([]).names
            self.assertEqual(len(names), count)
            self.assertEqual(names, [name for name in models.CASES if name in names])
        self.assertLess({"minilm-f32"}, set(names))
        self.assertFalse([name for name in names if name.endswith("bf16")])
        self.assertEqual(program.parse_arguments(["--quick"]).names, ["minilm-f32"])
        self.assertEqual(program.parse_arguments(["--only", "minilm-bf16"]).names, ["minilm-bf16"])
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            program.parse_arguments(["--only", "lenet"])


if __name__ == "__main__":
    unittest.main()
