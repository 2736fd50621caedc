"""Tests of how a run goes on after a peer that failed, with numpy alone and systems of paper."""

import contextlib
import io
import json
import pathlib
import tempfile
import types
import unittest
import unittest.mock

import numpy as np

from experiments.harness import environments, experiment, pool, run
from experiments.harness.errors import USAGE, WRONG_RESULT, ExperimentError
from experiments.test.fakes import FakePool


class FakeWorker:
    """Answers like pool.Worker. fails: {length: message}; wrong: lengths with another result."""

    def __init__(self, system, fails=(), wrong=(), seconds_a_check=0.0, milliseconds=1):
        self.system, self.fails, self.wrong = system, dict(fails), wrong
        self.seconds_a_check, self.milliseconds = seconds_a_check, milliseconds
        self.seconds, self.closed = 0.0, False

    def ask(self, method, *arguments):
        if method == "info":
            return {"version": "1", "settings": "as it is"}
        if arguments[0] in self.fails:
            raise ExperimentError(f"{self.system}: {self.fails[arguments[0]]}; see /a/log",
                                  system=self.system)
        if method == "check":
            self.seconds += self.seconds_a_check
            return np.ones(3) * (2 if arguments[0] in self.wrong else 1)
        return [int(self.milliseconds * 1e6)] * arguments[2]

    def confine(self):
        pass

    def close(self):
        self.closed = True


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def make_run(self, workers, lengths=(10, 20, 30)):
        """Returns a Run of an experiment that has these systems, `nimble` last."""
        peers = tuple(name for name in workers if name != "nimble")
        model = experiment.Experiment(
            name="m", title="m", histogram=lambda: dict.fromkeys(lengths, 1), threads=(1,),
            output="y", tolerance=1e-5, inputs=None, make_module=None, nimble_models=None,
            peers=peers)
        made = run.Run.__new__(run.Run)
        made.experiment, made.lengths = model, list(lengths)
        made.options = types.SimpleNamespace(no_nimble="nimble" not in workers, resume=True,
                                             within=None, tvm_seconds=20)
        made.counts, made.measured_seconds = dict.fromkeys(lengths, 1), 0.0
        made.weights = dict.fromkeys(lengths, 1)
        made.effort, made.peer_seconds = {"rounds": 3, "burst_us": 1000}, 60
        made.executables = {"m": {"nimble": __file__}} if "nimble" in workers else {}
        made.unprepared, made.peers = {}, list(peers)
        made.provenance, made.machine = {"commit": "c"}, {"cpu": "x"}
        made.partial = self.folder / "m.partial.json"
        made.cases = [run.Case(model, 1, list(peers))]
        return made

    def measure(self, made, workers):
        with unittest.mock.patch.object(run.pool, "Pool", lambda: FakePool(workers)), \
                unittest.mock.patch.object(run.models, "folder", lambda _: self.folder), \
                contextlib.redirect_stderr(io.StringIO()):
            made.measure_case(made.cases[0], run.Progress(len(made.lengths), 0))
        return made.cases[0]

    def case(self, lengths=(10, 20, 30), **workers):
        return self.measure(self.make_run(workers, lengths), workers)

    def test_a_peer_that_does_not_start_is_listed(self):
        case = self.case(torch=FakeWorker("torch"), tvm="no such operator",
                         nimble=FakeWorker("nimble"))
        self.assertEqual(case.errors, {"tvm": "no such operator"})
        for entry in case.done.values():
            self.assertEqual(list(entry["systems"]), ["torch", "nimble"])

    def test_a_peer_that_fails_later_keeps_what_it_had(self):
        tvm = FakeWorker("tvm", fails={10: "out of memory"})
        case = self.case(torch=FakeWorker("torch"), tvm=tvm, nimble=FakeWorker("nimble"))
        self.assertEqual(case.errors, {"tvm": "out of memory"})
        self.assertIn("tvm", case.done["20"]["systems"])  # the middle length came first
        self.assertNotIn("tvm", case.done["10"]["systems"])
        self.assertNotIn("tvm", case.done["30"]["systems"])
        self.assertTrue(tvm.closed)

    def test_a_peer_with_a_wrong_result_is_not_timed(self):
        case = self.case(torch=FakeWorker("torch"), tvm=FakeWorker("tvm", wrong=(10, 20, 30)),
                         nimble=FakeWorker("nimble"))
        self.assertIn("differs from torch by 1", case.errors["tvm"])
        self.assertNotIn("tvm", case.done["20"]["systems"])

    def test_nimble_and_the_reference_must_not_fail(self):
        with self.assertRaises(ExperimentError) as caught:
            self.case(torch=FakeWorker("torch"), nimble=FakeWorker("nimble", wrong=(10,)))
        self.assertEqual(caught.exception.code, WRONG_RESULT)
        with self.assertRaisesRegex(ExperimentError, "torch: gone"):
            self.case(torch="gone", nimble=FakeWorker("nimble"))
        with self.assertRaisesRegex(ExperimentError, "nimble: gone"):
            self.case(torch=FakeWorker("torch"), nimble="gone")

    def test_a_slow_peer_is_stopped_and_kept_for_what_it_reached(self):
        case = self.case(torch=FakeWorker("torch"), tvm=FakeWorker("tvm", seconds_a_check=40),
                         nimble=FakeWorker("nimble"))
        self.assertEqual(case.errors["tvm"], "stopped after 60 s, with 2 of 3 lengths")
        self.assertEqual([length for length in case.done if "tvm" in case.done[length]["systems"]],
                         ["20", "10"])

    def test_a_peer_that_is_slow_at_its_last_length_is_done(self):
        case = self.case((10,), torch=FakeWorker("torch"),
                         tvm=FakeWorker("tvm", seconds_a_check=99), nimble=FakeWorker("nimble"))
        self.assertEqual(case.errors, {})

    def test_a_limit_of_time_keeps_both_ends_and_every_sentence(self):
        lengths = range(10, 31)
        made = self.make_run({"torch": FakeWorker("torch"), "nimble": FakeWorker("nimble")},
                             lengths)
        made.options.within = "1s"
        with unittest.mock.patch.object(run.Share, "is_over", lambda self, done: done >= 7):
            case = self.measure(made, {"torch": FakeWorker("torch"),
                                       "nimble": FakeWorker("nimble")})
        self.assertEqual(len(case.done), 7)
        self.assertTrue(case.ended)
        entries = made.entries(case)
        self.assertEqual([entry["length"] for entry in entries][::6], [10, 30])
        self.assertEqual(sum(entry["count"] for entry in entries), len(lengths))

    def test_the_time_is_shared_among_the_cases_that_wait(self):
        made = self.make_run({"torch": FakeWorker("torch"), "nimble": FakeWorker("nimble")})
        made.options.within = "10m"
        made.cases = [run.Case(made.experiment, threads, ["torch"]) for threads in (1, 2, 3)]
        self.assertEqual(made.share().seconds, 200)
        made.cases[0].ended, made.measured_seconds = True, 100.0
        self.assertEqual(made.share().seconds, 250)
        made.measured_seconds = 700.0
        self.assertEqual(made.share().seconds, 0)

    def test_a_share_ends_with_its_time_but_not_before_five_lengths(self):
        now = [0.0]
        share = run.Share(60, lambda: now[0])
        self.assertFalse(share.is_over(9))
        self.assertEqual(share.of_a_peer(600, lengths=5), 20)
        self.assertEqual(share.of_a_peer(600, lengths=4), 600)
        now[0] = 61.0
        self.assertTrue(share.is_over(5))
        self.assertFalse(share.is_over(4))
        self.assertFalse(run.Share(None, lambda: now[0]).is_over(99))
        self.assertEqual(run.Share(None).of_a_peer(600, lengths=9), 600)

    def test_a_case_without_time_measures_its_peers_as_often_as_nimble(self):
        workers = {"torch": FakeWorker("torch"), "nimble": FakeWorker("nimble"),
                   "openvino": FakeWorker("openvino", seconds_a_check=9)}
        made = self.make_run(workers, range(10, 31))
        made.options.within, made.measured_seconds = "1s", 2.0
        case = self.measure(made, workers)
        self.assertEqual(len(case.done), run.FEWEST_LENGTHS)
        for entry in case.done.values():
            self.assertIn("openvino", entry["systems"])

    def test_resume_goes_on_and_keeps_the_errors(self):
        workers = {"torch": FakeWorker("torch"), "tvm": "broken",
                   "nimble": FakeWorker("nimble", fails={30: "stop"})}
        made = self.make_run(workers)
        with self.assertRaises(ExperimentError):
            self.measure(made, workers)
        saved = json.loads(made.partial.read_text())
        self.assertEqual(set(saved["cases"]["m:1"]["done"]), {"10", "20"})
        self.assertGreater(saved["measured_seconds"], 0)  # of --within, which goes on, too
        workers["nimble"] = FakeWorker("nimble")
        again = self.make_run(workers)
        again.load_partial()
        self.assertEqual(set(again.cases[0].done), {"10", "20"})
        case = self.measure(again, {**workers, "tvm": FakeWorker("tvm")})
        self.assertEqual(set(case.done), {"10", "20", "30"})
        self.assertEqual(case.errors, {"tvm": "broken"})

    def test_with_nothing_to_resume_all_is_built_anew(self):
        workers = {"torch": FakeWorker("torch"), "nimble": FakeWorker("nimble")}

        def build():
            """Returns whether it tuned, and whether it took an old executable."""
            made, tuned = self.make_run(workers), []
            made.models, made.options.tune = [made.experiment], "5m"
            with unittest.mock.patch.object(run.models, "export"), \
                    unittest.mock.patch.object(run.models, "tune",
                                               lambda *_: tuned.append(True)), \
                    unittest.mock.patch.object(run.models, "compile_nimble",
                                               lambda _, options, *rest: options.resume), \
                    contextlib.redirect_stderr(io.StringIO()):
                made.build()
            return bool(tuned), made.executables["m"]
        self.assertEqual(build(), (True, False))
        self.measure(self.make_run(workers), workers)
        self.assertEqual(build(), (False, True))

    def test_other_settings_do_not_resume(self):
        workers = {"torch": FakeWorker("torch"), "nimble": FakeWorker("nimble")}
        made = self.make_run(workers)
        self.measure(made, workers)
        other = self.make_run(workers, lengths=(10, 40))
        with self.assertRaisesRegex(ExperimentError, "other settings .*lengths"):
            other.load_partial()

    def test_a_peers_tuner_has_its_time_before_the_peer_answers(self):
        model, waited = types.SimpleNamespace(name="m"), []
        with unittest.mock.patch.object(pool.subprocess, "Popen"), \
                unittest.mock.patch.object(pool, "BUILD", self.folder), \
                unittest.mock.patch.object(pool.Worker, "_receive",
                                           lambda _, seconds: waited.append(seconds)):
            for options in ({}, {"tvm_seconds": 1200}):
                pool.Worker(model, "tvm", "tvm_relax", 1, [0], options).close()
        self.assertEqual(waited, [pool.LOAD_SECONDS, pool.LOAD_SECONDS + 1200])

    def test_a_peer_whose_environment_fails_is_listed(self):
        made = self.make_run({"torch": FakeWorker("torch"), "mxnet": FakeWorker("mxnet")})

        def make(name):
            if name:
                raise environments.SetupError("pip failed")
        with unittest.mock.patch.object(run.environments, "make", make), \
                contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(made.prepare(), {"mxnet": "pip failed"})

    def test_long_errors_are_cut_and_paths_left_out(self):
        error = ExperimentError("tvm: " + "x" * 999 + "; see /a/log", system="tvm")
        self.assertEqual(len(run.reason(error)), run.LONGEST_REASON)
        self.assertEqual(run.reason(ExperimentError("tvm: no; see /a/log", system="tvm")), "no")


class Variants(unittest.TestCase):
    def test_tables_models_load_by_name(self):
        lstm = experiment.load("lstm")
        self.assertEqual([model.name for model in lstm.variants],
                         ["lstm/loop-1", "lstm/fused-2", "lstm/loop-2"])
        self.assertEqual(experiment.load("lstm/loop-2").case, "2 layers, loop")
        cases = run.Run(["lstm", "--cases", "loop-1,lstm", "--threads", "1"]).cases
        self.assertEqual([case.name for case in cases],
                         ["1 layer, fused, 1 thread", "1 layer, loop, 1 thread"])

    def test_an_unknown_case_is_refused(self):
        with self.assertRaisesRegex(ExperimentError, "there are lstm, loop-1, fused-2, loop-2"
                                    ) as caught:
            run.Run(["lstm", "--cases", "loop-3"])
        self.assertEqual(caught.exception.code, USAGE)

    def test_tuning_sees_no_length_that_is_reported(self):
        for name in ("lstm", "bert-base"):
            found = experiment.load(name)
            reported, tuned = set(found.histogram()), set(found.tuning_histogram())
            self.assertTrue(reported and tuned)
            self.assertFalse(reported & tuned)


class Environments(unittest.TestCase):
    def test_each_peers_environment_has_its_pins(self):
        named = {row.environment for row in run.systems.PEERS.values()} - {None}
        self.assertEqual(named, set(environments.names()))
        for name in named:
            for line in (environments.OWN / f"{name}.txt").read_text().splitlines():
                self.assertRegex(line, r"^(#.*|[\w-]+==[\w.]+)$")

    def test_other_pins_are_another_environment(self):
        self.assertNotEqual(environments.wanted("mxnet"), environments.wanted("tensorflow"))
        self.assertNotEqual(environments.folder("mxnet"), environments.folder())

    def test_each_peer_has_its_file(self):
        for row in run.systems.ALL.values():
            self.assertTrue((environments.ROOT / "experiments" / "peers" /
                             f"{row.module}.py").exists(), row.module)


class BertWeights(unittest.TestCase):
    def test_shapes_are_those_of_bert_base(self):
        from experiments.bert_base import weights
        count = sum(int(np.prod(shape)) for shape in weights.shapes().values())
        self.assertEqual(count, 108_891_648)  # bert-base-uncased without its pooler

    def test_inputs_are_two_sentences(self):
        from experiments.bert_base import weights
        made = weights.inputs(21)
        self.assertEqual(made["input_ids"].shape, (1, 21))
        self.assertEqual(list(np.flatnonzero(made["input_ids"][0] == weights.SEP)), [10, 20])
        self.assertEqual(list(made["token_type_ids"][0]), [0] * 11 + [1] * 10)


if __name__ == "__main__":
    unittest.main()
