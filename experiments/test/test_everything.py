"""Tests of `experiments/run all`, with numpy alone."""

import contextlib
import io
import os
import pathlib
import tempfile
import types
import unittest
import unittest.mock

from experiments.harness import everything, experiment
from experiments.harness.errors import USAGE, ExperimentError


def options(**given):
    return types.SimpleNamespace(**{"quick": False, "untuned": False, "tune": None, "within": None,
                                    "tvm_tuning": None, **given})


class Choice(unittest.TestCase):
    def test_all_folders_take_part(self):
        self.assertEqual(everything.choose(None, None),
                         [*experiment.NAMES, *experiment.PROGRAMS])
        self.assertEqual(everything.choose("minilm,lstm", None), ["lstm", "minilm"])
        self.assertNotIn("exporters", everything.choose(None, "exporters"))

    def test_an_unknown_name_is_refused(self):
        for only, without in (("nothing", None), (None, "nothing")):
            with self.assertRaises(ExperimentError) as caught:
                everything.choose(only, without)
            self.assertEqual(caught.exception.code, USAGE)

    def test_an_experiment_gets_the_flags_that_it_knows(self):
        known = "--quick --tune BUDGET --untuned"
        self.assertEqual(everything.flags(options(), known), ["--tune", everything.TUNE])
        self.assertEqual(everything.flags(options(tune="9m"), known), ["--tune", "9m"])
        self.assertEqual(everything.flags(options(untuned=True, quick=True), known),
                         ["--quick", "--untuned"])
        self.assertEqual(everything.flags(options(quick=True, tune="1m"), "--quick"), ["--quick"])
        self.assertEqual(everything.flags(options(quick=True), ""), [])
        self.assertEqual(everything.flags(options(untuned=True, within="4m", tvm_tuning="9s"),
                                          known + " --within TIME"), ["--untuned", "--within", "4m"])
        self.assertEqual(everything.flags(options(), "--tune PROGRAM, --tune-twice"), [])

    def test_what_tunes_in_a_time_of_its_own_is_left_to_it(self):
        known = everything.help_of("images")
        self.assertIn("--total TIME", known)
        self.assertEqual(everything.flags(options(), known), [])
        self.assertEqual(everything.flags(options(tune="9m"), known), ["--tune", "9m"])

    def test_programs_that_know_a_flag_say_so_in_their_help(self):
        self.assertIn("--tune BUDGET", everything.help_of("lstm"))
        self.assertIn("--seconds", everything.help_of("budget"))
        for flag in ("--within TIME", "--tvm-tuning TIME"):
            self.assertIn(flag, everything.help_of("lstm"))


class Order(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "all.json"
        self.results = self.path.parent / "results"
        self.results.mkdir()

    def run_all(self, names, codes, resume=False, commit="c", writes=()):
        self.ran = []

        def run(name, arguments):
            self.ran.append((name, arguments))
            if name in writes:
                (self.results / f"{name}.json").write_text("{}")
            return codes.get(name, 0)
        err = io.StringIO()
        with contextlib.redirect_stderr(err), \
                unittest.mock.patch.object(everything.report, "RESULTS", self.results):
            found = everything.run_all(names, {name: ["--x"] for name in names},
                                       everything.State(self.path), commit, resume, run)
        self.printed = err.getvalue()
        return found

    def test_goes_on_after_one_that_failed(self):
        self.assertEqual(self.run_all(["a", "b", "c"], {"b": 3}), {"a": 0, "b": 3, "c": 0})
        self.assertEqual(self.ran, [("a", ["--x"]), ("b", ["--x"]), ("c", ["--x"])])
        self.assertIn("[2/3] b failed with 3; going on", self.printed)

    def test_resume_leaves_out_what_ended_well(self):
        self.run_all(["a", "b", "c"], {"b": 1})
        self.assertEqual(self.run_all(["a", "b", "c"], {}, resume=True), {"b": 0})
        self.assertEqual(self.run_all(["a", "b", "c"], {}, resume=True), {})
        self.assertEqual(len(self.run_all(["a", "b", "c"], {}, resume=False)), 3)

    def test_a_bar_that_is_not_kept_is_a_result_and_a_wrong_result_is_none(self):
        codes = self.run_all(["a", "b"], {"a": 3, "b": 3}, writes=["a"])
        self.assertEqual(codes, {"a": 3, "b": 3})
        self.assertIn("a done; not all of its bars are kept", self.printed)
        self.assertIn("b failed with 3; going on", self.printed)
        # What is there from before is no result of the run.
        self.run_all(["b"], {"b": 3}, writes=["b"])
        old = self.results / "b.json"
        os.utime(old, (1, 1))
        self.run_all(["b"], {"b": 3})
        self.assertEqual(self.run_all(["a", "b"], {}, resume=True), {"b": 0})

    def test_another_commit_is_another_run(self):
        self.run_all(["a"], {})
        self.assertEqual(self.run_all(["a"], {}, resume=True, commit="d"), {"a": 0})

    def test_an_interruption_ends_the_run_and_is_not_done(self):
        with self.assertRaises(KeyboardInterrupt):
            self.run_all(["a", "b", "c"], {"b": 130})
        self.assertEqual([name for name, _ in self.ran], ["a", "b"])
        self.assertEqual(list(self.run_all(["a", "b", "c"], {}, resume=True)), ["b", "c"])

    def test_time_left_comes_from_earlier_runs(self):
        state = everything.State(self.path)
        self.assertIsNone(state.expected(["a"]))
        state.note("a", {}, 0, 60.0)
        state.note("b", {}, 1, 9999.0)  # failed: tells nothing
        state.note("c", {}, 0, 120.0)
        self.assertEqual(everything.State(self.path).expected(["a", "b", "new"]), 60 + 90 + 90)
        self.assertEqual(everything.clock(3725), "1:02:05")


if __name__ == "__main__":
    unittest.main()
