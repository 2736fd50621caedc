"""Tests of the experiment in low precision, with numpy alone and systems of paper."""

import contextlib
import dataclasses
import io
import math
import pathlib
import tempfile
import types
import unittest
import unittest.mock

import numpy as np

from experiments.bert_base import weights
from experiments.harness import experiment, models, report, run, statistics, systems, workload
from experiments.harness.errors import WRONG_RESULT, ExperimentError
from experiments.precision import accuracy, limits, scales, similarity, tables
from experiments.precision import run as precision_run
from experiments.precision import experiment as precision_experiment
from experiments.precision.models import BF16, EXACT, INT8, ROWS, SINGLE, Encoder, row_of

BERT, MINILM, BERT_INT8, MINILM_INT8 = ROWS[:4]
EXPECTED = np.linspace(1.0, 2.0, 100)


class FakeWorker:
    """Answers like pool.Worker: the expected result times 1 + error."""

    def __init__(self, system, error=0.0, result=None, fails=None):
        self.system, self.fails, self.seconds, self.closed = system, fails, 0.0, False
        self.result = EXPECTED * (1 + error) if result is None else result
        self.asked = []

    def ask(self, method, *arguments):
        self.asked.append(method)
        if method == "info":
            return {"version": "1", "settings": "as it is"}
        if self.fails == method:
            raise ExperimentError(f"{self.system}: no {method}; see /a/log", system=self.system)
        if method == "embed":
            self.seconds += 5
            pairs = np.stack([np.ones((9, 2)), np.arange(18).reshape(9, 2)], axis=1)
            return pairs * self.result[0] if self.system != "openvino" else pairs[::-1]
        return self.result if method == "check" else [1_000_000] * arguments[2]

    def confine(self):
        pass

    def close(self):
        self.closed = True


def workers(**errors):
    """Workers with a relative error each; f64 and f32 are there in any case."""
    made = {EXACT: 0.0, SINGLE: 1e-7, **errors}
    return {name: FakeWorker(name, error) for name, error in made.items()}


class Models(unittest.TestCase):
    def test_work_of_bert_is_that_of_its_matrices(self):
        products = sum(int(np.prod(shape)) for name, shape in weights.shapes().items()
                       if name.startswith("encoder") and len(shape) == 2)
        self.assertEqual(BERT.work.weights(), products)

    def test_operations_are_counted_once_by_hand(self):
        work = Encoder(1, 2, 3)  # four 2 × 2 matrices, two 2 × 3
        self.assertEqual(work.weights(), 28)
        # Five tokens: each 28 multiply-adds; 25 scores of 2 each, 5 results of 2 from 5 each.
        self.assertEqual(work.flops(5), 2 * (5 * 28 + 25 * 2 + 5 * 2 * 5))

    def test_each_row_has_its_case_systems_and_options(self):
        first = experiment.load("precision")
        found = [first, *first.variants]
        self.assertEqual([row_of(one) for one in found], list(ROWS))
        for one, row in zip(found, ROWS):
            self.assertTrue(set(one.peers) <= set(systems.PEERS), one.peers)
            self.assertIn(one.nimble, systems.NIMBLE)
            self.assertEqual(one.peers[:2], (EXACT, SINGLE))
            self.assertFalse(set(one.histogram()) & set(one.tuning_histogram()))
            for system, words in ((one.nimble, ["--precision", row.precision.name]),
                                  ("nimble", [])):
                self.assertEqual(list(models.nimble_options(one, system)), words)
        self.assertEqual(experiment.load("precision/minilm-bf16").output, "sentence_embedding")

    def test_the_references_stay_whichever_peers_are_chosen(self):
        made = precision_run.Run(["precision", "--peers", "openvino_bf16", "--threads", "1"])
        self.assertEqual(made.cases[1].peers, [EXACT, SINGLE, "openvino_bf16"])
        self.assertEqual(made.cases[3].peers, [EXACT, SINGLE])
        self.assertEqual([case.name for case in made.cases],
                         ["BERT-base, bf16, 1 thread", "all-MiniLM-L6-v2, bf16, 1 thread",
                          "BERT-base, int8, 1 thread", "all-MiniLM-L6-v2, int8, 1 thread",
                          "BERT-base, int8-reduced, 1 thread",
                          "all-MiniLM-L6-v2, int8-reduced, 1 thread"])

    def test_cases_may_be_chosen(self):
        made = precision_run.Run(["precision", "--cases", "bert-base-int8", "--threads", "1"])
        self.assertEqual([model.name for model in made.models], ["precision/bert-base-int8"])
        self.assertEqual(made.cases[0].peers[2:], [*INT8.rivals, "openvino", "onnxruntime"])

    def test_quantisers_see_no_length_that_is_reported(self):
        one = experiment.load("precision/minilm-int8")
        lengths = [inputs["input_ids"].shape[1] for inputs in one.calibration()]
        self.assertGreater(len(lengths), 12)
        self.assertEqual(lengths, workload.quantile_lengths(
            precision_experiment.tuning_histogram(), precision_experiment.CALIBRATED))
        self.assertFalse(set(lengths) & set(one.histogram()))


class Accuracy(unittest.TestCase):
    def test_deviation(self):
        found = accuracy.deviation(np.array([3.0, 4.5], np.float32), np.array([3.0, 4.0]))
        self.assertEqual(found, {"difference": 0.5, "relative_error": 0.1})

    def test_what_is_accepted_follows_from_the_error_of_f32(self):
        found = accuracy.tolerance_of({"difference": 1e-6, "relative_error": 1e-7}, BF16)
        self.assertAlmostEqual(found["difference"], 65536e-6)
        self.assertAlmostEqual(found["relative_error"], 65536e-7)

    def test_no_luck_of_f32_is_asked_of_a_narrower_type(self):
        found = accuracy.tolerance_of({"difference": 1e-7, "relative_error": 2.0 ** -25}, BF16)
        self.assertAlmostEqual(found["relative_error"], 1.5 * 2.0 ** -8)
        self.assertAlmostEqual(found["difference"], 65536e-7 * 3)
        found = accuracy.tolerance_of({"difference": 0.0, "relative_error": 0.0}, BF16)
        self.assertAlmostEqual(found["relative_error"], 1.5 * 2.0 ** -8)
        self.assertEqual(found["difference"], math.inf)  # the relative one decides

    def examine(self, found):
        return accuracy.examine(found, BF16, 1e-5, 7)

    def test_a_narrow_system_has_its_tolerance_and_others_theirs(self):
        figures, errors, tolerance = self.examine(workers(
            nimble_bf16=6.5e-3, openvino_bf16=1e-2, openvino=1e-6, nimble=1e-5))
        self.assertAlmostEqual(tolerance["relative_error"], 65536e-7)
        self.assertEqual(list(figures), [EXACT, SINGLE, "nimble_bf16", "openvino"])
        self.assertAlmostEqual(figures["nimble_bf16"]["relative_error"], 6.5e-3)
        self.assertRegex(str(errors["openvino_bf16"]), "length 7: difference of 0.02 from torch_f64")
        self.assertRegex(str(errors["nimble"]), "difference of 2e-05 from torch_f64, allowed .* 1e-05")
        self.assertEqual({error.code for error in errors.values()}, {WRONG_RESULT})
        self.assertEqual({name: error.system for name, error in errors.items()},
                         {name: name for name in errors})

    def test_one_wrong_number_or_another_shape_is_refused(self):
        found = workers(nimble_bf16=0.0, openvino_bf16=0.0, torch_bf16=0.0)
        found["nimble_bf16"].result[50] += 0.05  # a relative error that would pass by itself
        found["openvino_bf16"].result[3] = math.nan
        found["torch_bf16"].result = EXPECTED[1:]
        found["onnxruntime"] = FakeWorker("onnxruntime", fails="check")
        figures, errors, tolerance = self.examine(found)
        self.assertLess(accuracy.deviation(found["nimble_bf16"].result, EXPECTED)["relative_error"],
                        tolerance["relative_error"])
        self.assertEqual(set(errors), {"nimble_bf16", "openvino_bf16", "torch_bf16", "onnxruntime"})
        self.assertEqual(set(figures), {EXACT, SINGLE})

    def test_references_must_not_fail(self):
        for name, error in ((SINGLE, 1e-5), (EXACT, math.nan)):
            with self.assertRaises(ExperimentError):
                self.examine({**workers(), name: FakeWorker(name, error)})
        for name in (SINGLE, EXACT):
            with self.assertRaisesRegex(ExperimentError, f"{name}: no check"):
                self.examine({**workers(), name: FakeWorker(name, fails="check")})

    def entry(self, length, count=1, **errors):
        return {"length": length, "count": count, "systems": {
            name: {"relative_error": error, "difference": 10 * error}
            for name, error in errors.items()}}

    def test_summary_over_lengths(self):
        found = accuracy.summarise([self.entry(5, 3, nimble_bf16=2e-3, openvino=1e-7),
                                    self.entry(9, 1, nimble_bf16=4e-3)])
        self.assertAlmostEqual(found["nimble_bf16"]["relative_error"], 2e-3 * 2 ** 0.25)
        self.assertEqual(found["nimble_bf16"]["largest_relative_error"], 4e-3)
        self.assertAlmostEqual(found["nimble_bf16"]["difference"], 4e-2)
        self.assertAlmostEqual(found["openvino"]["relative_error"], 1e-7)

    def test_eight_bits_have_the_tolerance_of_a_scale_for_many(self):
        _, errors, tolerance = accuracy.examine(
            workers(nimble_int8=0.05, openvino_int8_dynamic=0.2), INT8, 1e-5, 7)
        self.assertAlmostEqual(tolerance["relative_error"], 1e-7 * 2 ** 24 * 16 / 254)
        self.assertEqual(set(errors), {"openvino_int8_dynamic"})

    def test_the_worst_length_against_the_most_accurate_peer_of_the_same_precision(self):
        entries = [self.entry(5, nimble_bf16=2e-3, openvino_bf16=4e-3, torch_bf16=2e-3, torch=1e-7),
                   self.entry(9, nimble_bf16=3e-3, openvino_bf16=2e-3),
                   self.entry(11, nimble_bf16=9e-3, torch=1e-7), self.entry(13, torch_bf16=1e-9)]
        self.assertAlmostEqual(accuracy.worst_ratio(entries, BF16), 1.5)
        self.assertIsNone(accuracy.worst_ratio(entries[2:], BF16))


class Scales(unittest.TestCase):
    def test_an_outlier_is_felt_in_its_group_alone(self):
        x = np.random.default_rng(1).uniform(-1, 1, (5, 256))
        x[:, 3] = 60
        whole, groups = (np.abs(scales.over_range(x, group) - x) for group in (0, 64))
        self.assertGreater(whole[:, 64:].max(), 0.1)
        self.assertLess(groups[:, 64:].max(), 1 / 255 + 1e-9)
        self.assertGreater(groups[:, :64].max(), 0.1)

    def test_steps_reach_from_the_least_to_the_largest(self):
        x = np.array([[3.0, 258.0, 4.4, 100.0]])
        self.assertEqual(scales.over_range(x, 0).tolist(), [[3, 258, 4, 100]])
        self.assertEqual(scales.over_range(np.full((1, 4), 0.3), 2).tolist(), [[0.3] * 4])
        self.assertEqual(scales.around_zero(np.array([[127.0, -3.4, 0, 0]]), 2).tolist(),
                         [[127, -3, 0, 0]])


class Limits(unittest.TestCase):
    PEAKS = [{"ceilings": [
        {"kind": "compute", "dtype": "f32", "threads": 2, "value": 1e11},
        {"kind": "compute", "dtype": "bf16", "threads": 2, "value": 2e11},
        {"kind": "read_memory", "dtype": "any", "threads": 2, "value": 3e10}]}]

    def test_a_cpu_without_the_instruction_has_the_peak_of_f32(self):
        self.assertEqual(limits.roof(self.PEAKS, 2, BF16)["flops"], 2e11)
        without = [{"ceilings": [c for c in self.PEAKS[0]["ceilings"] if c["dtype"] != "bf16"]}]
        found = limits.roof(without, 2, BF16)
        self.assertEqual((found["dtype"], found["flops"]), ("f32", 1e11))

    def test_limits_of_a_run(self):
        roof = limits.roof(self.PEAKS, 2, BF16)
        found = limits.limits(BERT, roof, 32 << 20, 64)
        self.assertAlmostEqual(found["arithmetic_us"], BERT.work.flops(64) / 2e5)
        self.assertAlmostEqual(found["memory_us"], 2 * BERT.work.weights() / 3e4)
        self.assertIsNone(limits.limits(MINILM, roof, 32 << 20, 64)["memory_us"])  # in the cache


class Similarity(unittest.TestCase):
    def test_pairs_have_the_lengths_of_mrpc_and_share_words(self):
        made = similarity.pairs(50)
        for (a, b), length in zip(made, similarity.workload.read(("first", "second"), "test")):
            self.assertEqual((len(a), len(b)), length)
            self.assertEqual((a[0], a[-1], b[0], b[-1]), (101, 102, 101, 102))
            shared = len(set(a[1:-1]) & set(b[1:-1]))
            self.assertGreaterEqual(shared, min(len(a), (len(b) - 2) // 2) - 2)
        np.testing.assert_array_equal(similarity.pairs(7)[6][1], made[6][1])
        self.assertEqual(len(similarity.pairs()), 1725)

    def test_ranks_share_the_mean_of_ties(self):
        self.assertEqual(list(similarity.ranks([3, 1, 3, 2, 3])), [4, 1, 4, 2, 4])

    def test_rank_correlation(self):
        self.assertAlmostEqual(similarity.rank_correlation([1, 2, 3], [1, 10, 11]), 1)
        self.assertAlmostEqual(similarity.rank_correlation([1, 2, 3], [3, 2, 1]), -1)
        a, b = np.random.default_rng(1).permutation(20), np.random.default_rng(2).permutation(20)
        textbook = 1 - 6 * np.sum((a - b) ** 2) / (20 * (20 ** 2 - 1))  # without ties
        self.assertAlmostEqual(similarity.rank_correlation(a, b), textbook)
        self.assertTrue(math.isnan(similarity.rank_correlation([1, 1], [1, 2])))

    def test_cosines_do_not_depend_on_length(self):
        found = similarity.cosines(np.array([[[2.0, 0], [3, 0]], [[1, 1], [0, 9]]]))
        np.testing.assert_allclose(found, [1, math.sqrt(0.5)])


def case(ours=100.0, correlation=0.999, error=1e-3):
    """A case of a result in which nimble takes `ours` µs and OpenVINO 150."""
    entries = []
    for length in (21, 53):
        rounds = {"torch": [300.0] * 3, "openvino_bf16": [150.0] * 3, "openvino": [140.0] * 3}
        if ours:
            rounds["nimble_bf16"] = [ours] * 3
        found, comparison = statistics.summarize(
            rounds, [name for name in rounds if name != "nimble_bf16"],
            "nimble_bf16" if ours else None, BF16.rivals)
        for name, value in found.items():
            value.update(relative_error=error if name == "nimble_bf16" else 1e-3, difference=0.01)
        entries.append({"length": length, "count": 2, "systems": found, **comparison,
                        "tolerance": {"relative_error": 0.01, "difference": 0.1},
                        "limits": {"arithmetic_us": 50.0, "memory_us": None}})
    made = run.summarize_case("MiniLM, bf16, 2 threads", 2, MINILM.peers, entries,
                              {} if ours else {"nimble_bf16": "no --precision"})
    made.update(precision="bf16", model="minilm", accuracy=accuracy.summarise(entries), pairs=9,
                similarities={"nimble_bf16": {"rank_correlation": correlation,
                                              "largest_difference": 1e-3}} if ours else {},
                roof={"dtype": "bf16", "flops": 2e11, "bytes": 3e10})
    return made


class Tables(unittest.TestCase):
    def kept(self, **changes):
        return [bar["kept"] for bar in tables.bars(MINILM, case(**changes))]

    def test_the_best_peer_is_one_of_the_same_precision(self):
        self.assertEqual({entry["best_peer"] for entry in case()["lengths"]}, {"openvino_bf16"})
        self.assertAlmostEqual(case()["ratio_to_best_peer"], 1.5)
        self.assertAlmostEqual(case()["ratio_to"]["openvino"], 1.4)

    def test_bars(self):
        self.assertEqual(self.kept(), [True] * 3)
        self.assertEqual(self.kept(ours=130.0), [False, True, True])
        self.assertEqual(self.kept(error=1.3e-3), [True, False, True])
        self.assertEqual(self.kept(correlation=0.99), [True, True, False])
        self.assertEqual(self.kept(correlation=math.nan), [True, True, False])
        self.assertEqual(self.kept(ours=None), [False] * 3)
        self.assertEqual(len(tables.bars(BERT, case())), 2)

    def test_eight_bits_may_be_no_more_wrong_than_the_best_peer(self):
        shown = case(error=1e-3)
        for entry in shown["lengths"]:
            systems = entry["systems"]
            systems["nimble_int8"] = systems.pop("nimble_bf16")
            systems["openvino_int8_dynamic"] = systems.pop("openvino_bf16")
        shown["similarities"] = {"nimble_int8": {"rank_correlation": 0.996,
                                                 "largest_difference": 0.01}}
        found = tables.bars(MINILM_INT8, shown)
        self.assertEqual([(bar.get("least", bar.get("most")), bar["kept"]) for bar in found],
                         [(1.1, True), (1.0, True), (0.995, True)])
        shown["lengths"][0]["systems"]["nimble_int8"]["relative_error"] = 1.01e-3
        self.assertEqual([bar["kept"] for bar in tables.bars(MINILM_INT8, shown)],
                         [True, False, True])

    def test_the_page(self):
        for ours, time, verdict in ((100.0, "4.8 | 7.1 (OpenVINO bf16) | 1.500", "1.5, at least "
                                     "1.2: kept"),
                                    (None, "- | 7.1 (OpenVINO bf16) | -", "not measured, at least "
                                     "1.2: not kept")):
            shown = case(ours)
            text = tables.markdown([MINILM], {"bars": tables.bars(MINILM, shown), "cases": [shown]})
            self.assertIn(f"| 21 | 2 | {time} | 2.4 | - | {'50 %' if ours else '-'} |", text)
            self.assertIn(verdict, text)
            self.assertIn("at 200 GFLOP/s, the peak of bf16, the memory limit", text)
            self.assertIn("| 1.0e-03 (1.0e-02) |", text)
            self.assertIn("no --precision" if not ours else "ratio to each", report.table(shown))

    def test_a_run_without_nimble_doctor_has_no_limits(self):
        shown = case()
        shown["roof"] = None
        for entry in shown["lengths"]:
            del entry["limits"]
        text = tables.markdown([MINILM], {"bars": [], "cases": [shown]})
        self.assertIn("| 1.500 | - | - | - |", text)
        self.assertNotIn("## Bars", text)


class FakePool(run.pool.Pool):
    def __init__(self, made):
        super().__init__()
        self.made = made

    def start(self, system, *_):
        self.workers[system] = self.made[system]


class Runs(unittest.TestCase):
    """A run of MiniLM's case with systems of paper."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "m.nimble"
        self.file.write_text("x")

    def make_run(self, peers):
        made = precision_run.Run(["precision", "--cases", "minilm-bf16", "--threads", "1",
                                  "--lengths", "21,53", "--quick", "--peers", ",".join(peers)])
        made.partial = self.folder / "partial.json"
        made.unprepared = {}
        return made

    def measure(self, made, found):
        with unittest.mock.patch.object(run.pool, "Pool", lambda: FakePool(found)), \
                unittest.mock.patch.object(run.models, "folder", lambda _: self.folder), \
                unittest.mock.patch.object(precision_run.programs, "BIN", self.folder), \
                contextlib.redirect_stderr(io.StringIO()):
            made.measure_case(made.cases[0], run.Progress(2, 0))
            return made.assemble()

    def build(self, made, run_nimble):
        with unittest.mock.patch.object(models, "run_nimble", run_nimble), \
                unittest.mock.patch.object(models, "export"), \
                unittest.mock.patch.object(models, "folder", lambda _: self.folder), \
                unittest.mock.patch.object(models, "BIN", self.folder), \
                unittest.mock.patch.object(models, "ROOT", self.folder), \
                contextlib.redirect_stderr(io.StringIO()):
            for name in ("nimble", "build/lib/libnimble.so"):
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_text("x")
            made.models = [dataclasses.replace(
                made.models[0], nimble_models=lambda _: {"nimble_bf16": "m", "nimble": "m"})]
            made.options.untuned = True
            made.build()

    def test_untimed_is_the_reference_and_similarities_are_found_once(self):
        found = workers(openvino_bf16=1e-3, openvino=0.0, nimble_bf16=1e-3)
        made = self.make_run(["openvino_bf16", "openvino"])
        made.executables = {made.models[0].name: {"nimble_bf16": str(self.file)}}
        result = self.measure(made, found)
        self.assertNotIn("burst", found[EXACT].asked)
        self.assertNotIn(EXACT, result["cases"][0]["us_per_token"])
        self.assertEqual([worker.asked.count("embed") for worker in found.values()], [1] * 5)
        self.assertTrue(all(worker.seconds == 0 for worker in found.values()))
        close = result["cases"][0]["similarities"]
        self.assertAlmostEqual(close["nimble_bf16"]["rank_correlation"], 1)
        self.assertAlmostEqual(close["openvino"]["rank_correlation"], -1)  # in another order
        entry = result["cases"][0]["lengths"][0]
        self.assertAlmostEqual(entry["systems"]["nimble_bf16"]["relative_error"], 1e-3)
        self.assertAlmostEqual(entry["tolerance"]["relative_error"], 65536e-7)
        self.assertIn("--precision bf16", result["systems"]["nimble_bf16"]["settings"])
        self.assertEqual(made.verdict(result), WRONG_RESULT)  # a ratio of 1
        again = self.make_run(["openvino_bf16", "openvino"])
        again.executables, again.options.resume = made.executables, True
        again.load_partial()
        self.assertEqual(again.cases[0].study, made.cases[0].study)

    def test_nimble_that_is_wrong_or_crashes_is_listed_and_the_run_goes_on(self):
        for broken in (FakeWorker("nimble_bf16", 0.5), FakeWorker("nimble_bf16", fails="embed")):
            made = self.make_run(["openvino_bf16"])
            made.executables = {made.models[0].name: {"nimble_bf16": str(self.file)}}
            result = self.measure(made, {**workers(openvino_bf16=1e-3), "nimble_bf16": broken})
            self.assertIn("nimble_bf16", result["cases"][0]["errors"])
            self.assertEqual(len(result["cases"][0]["lengths"]), 2)
            self.assertTrue(broken.closed)
            self.assertEqual(made.verdict(result), WRONG_RESULT)

    def test_nimble_without_the_option_is_listed_with_its_words(self):
        def run_nimble(_, command, system):
            if "--precision" in command:
                raise ExperimentError(f"{system}: nimble compile: unknown option --precision "
                                      "(status 2); see `…`", system=system)
            self.file.with_name("nimble.nimble").write_text("y")
        made = self.make_run(["openvino_bf16"])
        self.build(made, run_nimble)
        self.assertEqual(list(made.executables[made.models[0].name]), ["nimble"])
        result = self.measure(made, workers(openvino_bf16=1e-3, nimble=1e-7))
        self.assertEqual(result["cases"][0]["errors"]["nimble_bf16"],
                         "nimble compile: unknown option --precision (status 2)")
        self.assertEqual([bar["value"] for bar in result["bars"]], [None] * 3)

    def test_what_is_no_fault_of_nimble_ends_the_run(self):
        def run_nimble(*_):
            raise ExperimentError("no such database")
        with self.assertRaisesRegex(ExperimentError, "no such database"):
            self.build(self.make_run([]), run_nimble)


class Harness(unittest.TestCase):
    def test_a_programs_last_words_are_quoted(self):
        loud = types.SimpleNamespace(name="m")
        with unittest.mock.patch.object(models.sys, "stderr", Stream()) as shown, \
                self.assertRaises(ExperimentError) as caught:
            models.run_nimble(loud, ["sh", "-c", "echo no  option >&2; exit 2"], "nimble_bf16")
        self.assertEqual(run.reason(caught.exception), "no option (status 2)")
        self.assertEqual(caught.exception.system, "nimble_bf16")
        self.assertIn("no  option", shown.text)


class Stream:
    """Standard error that is a file."""

    def __init__(self):
        self.text, self.file = "", tempfile.TemporaryFile()

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return False

    def fileno(self):
        return self.file.fileno()


if __name__ == "__main__":
    unittest.main()
