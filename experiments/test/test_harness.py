"""Tests of the harness that need numpy but no peer:

    python -m unittest experiments/test/test_harness.py         from the repository root
"""

import json
import math
import pathlib
import tempfile
import unittest

import numpy as np

from experiments.harness import experiment, measure, report, statistics, systems, workload
from experiments.harness.errors import USAGE, WRONG_RESULT, ExperimentError
from experiments.lstm import weights
from experiments.tree_lstm import weights as tree_weights


class Experiments(unittest.TestCase):
    def test_a_folder_is_found_by_its_module(self):
        self.assertIn("tree-lstm", experiment.NAMES)
        self.assertIn("onnx-conformance", experiment.PROGRAMS)
        self.assertNotIn("harness", experiment.NAMES)
        self.assertFalse(set(experiment.NAMES) & set(experiment.PROGRAMS))


class WorkloadTest(unittest.TestCase):
    def test_counts_of_mrpc(self):
        pairs = workload.histogram(("pair",))
        self.assertEqual((min(pairs), max(pairs), sum(pairs.values())), (19, 104, 5801))
        single = workload.histogram(("first", "second"))
        self.assertEqual((min(single), max(single), sum(single.values())), (9, 54, 2 * 5801))
        test = workload.read(("first", "pair"), "test")
        self.assertEqual(len(test), 1725)
        self.assertEqual(len(test[0]), 2)
        mean = sum(n * count for n, count in pairs.items()) / 5801
        self.assertAlmostEqual(mean, 53.2, delta=0.05)

    def test_every_sentence_weighs_once_on_the_nearest_length(self):
        self.assertEqual(workload.weights({10: 3, 12: 5, 13: 7}, [10, 14]), {10: 8, 14: 7})

    def test_quantiles_hold_both_ends(self):
        lengths = workload.quantile_lengths(workload.histogram(("pair",)), 6)
        self.assertEqual((len(lengths), lengths[0], lengths[-1]), (6, 19, 104))

    def test_parses_lists_and_ranges(self):
        self.assertEqual(workload.parse("53,19-21", {}), [19, 20, 21, 53])
        self.assertEqual(workload.parse("all", {7: 1, 9: 2}), [7, 9])
        for text in ("", "x", "5-", "0", "20-19", "513"):
            with self.assertRaises(ExperimentError) as caught:
                workload.parse(text, {})
            self.assertEqual(caught.exception.code, USAGE)
        self.assertEqual(workload.parse("1-9", {2: 1, 7: 4}, any_length=False), [2, 7])
        with self.assertRaises(ExperimentError):
            workload.parse("3-6", {2: 1, 7: 4}, any_length=False)


class StatisticsTest(unittest.TestCase):
    def test_ratio_is_best_peer_over_reference(self):
        rounds = {"a": [10, 11, 12], "b": [8, 8, 8], "nimble": [4, 4, 4]}
        found, comparison = statistics.summarize(rounds, ["a", "b"], "nimble")
        self.assertEqual(found["a"]["median"], 11)
        self.assertEqual(found["a"]["samples"], [10, 11, 12])
        self.assertEqual(comparison["best_peer"], "b")
        self.assertEqual(comparison["ratio"], 2)
        self.assertEqual(comparison["ratio_to"], {"a": 2.75, "b": 2})

    def test_the_best_is_sought_among_rivals(self):
        rounds = {"a": [10] * 3, "b": [8] * 3, "nimble": [4] * 3}
        _, comparison = statistics.summarize(rounds, ["a", "b"], "nimble", ("a", "c"))
        self.assertEqual((comparison["best_peer"], comparison["ratio"]), ("a", 2.5))
        self.assertEqual(comparison["ratio_to"], {"a": 2.5, "b": 2})
        _, comparison = statistics.summarize(rounds, ["a", "b"], "nimble", ("c",))
        self.assertEqual((comparison["best_peer"], comparison["ratio"]), (None, None))

    def test_interval_holds_the_median_and_pairs_rounds(self):
        # Both systems slow down together: the ratio is certain though the times are not.
        mood = np.array([1, 1.5, 2, 1.2, 1.8, 1.1, 1.4])
        found, comparison = statistics.summarize(
            {"a": list(20 * mood), "nimble": list(10 * mood)}, ["a"], "nimble")
        self.assertLess(found["a"]["low"], found["a"]["median"])
        self.assertGreater(found["a"]["high"], found["a"]["median"])
        self.assertAlmostEqual(comparison["ratio_low"], 2)
        self.assertAlmostEqual(comparison["ratio_high"], 2)

    def test_weighted_geometric_mean(self):
        self.assertAlmostEqual(statistics.geometric_mean([2, 8], [1, 1]), 4)
        self.assertAlmostEqual(statistics.geometric_mean([2, 8], [2, 1]), math.exp(
            (2 * math.log(2) + math.log(8)) / 3))
        self.assertIsNone(statistics.geometric_mean([], []))


class FakeWorker:
    """Answers like pool.Worker, with a fixed result and a fixed time."""

    def __init__(self, result, nanoseconds=1000):
        self.result, self.nanoseconds, self.bursts = np.asarray(result), nanoseconds, 0
        self.runs = 0

    def ask(self, method, *arguments):
        if method == "check":
            return self.result
        self.bursts += 1
        self.runs += arguments[1] + arguments[2]
        return [self.nanoseconds] * arguments[2]

    def confine(self):
        pass


class MeasureTest(unittest.TestCase):
    def test_accepts_what_lies_within_the_tolerance(self):
        workers = {"a": FakeWorker([1.0, 2.0]), "b": FakeWorker([1.0, 2.0 + 5e-6])}
        self.assertAlmostEqual(measure.check(workers, "a", 1e-5, 7)["b"], 5e-6)

    def test_refuses_wrong_results(self):
        for wrong in ([1.0, 2.1], [1.0, math.nan], [1.0], [[1.0, 2.0]]):
            workers = {"a": FakeWorker([1.0, 2.0]), "b": FakeWorker(wrong)}
            with self.assertRaisesRegex(ExperimentError, "b at length 7") as caught:
                measure.check(workers, "a", 1e-5, 7)
            self.assertEqual(caught.exception.code, WRONG_RESULT)

    def test_every_round_visits_every_system(self):
        workers = {"a": FakeWorker([0], 2000), "b": FakeWorker([0], 5000)}
        self.assertEqual(measure.time_rounds(workers, 7, rounds=4, burst_us=100),
                         {"a": [2.0] * 4, "b": [5.0] * 4})
        self.assertEqual({worker.bursts for worker in workers.values()}, {6})

    def test_a_slow_system_runs_little(self):
        workers = {"a": FakeWorker([0], 10**6), "slow": FakeWorker([0], 5 * 10**8),
                   "endless": FakeWorker([0], 8 * 10**9)}
        found = measure.time_rounds(workers, 7, rounds=4, burst_us=100)
        self.assertEqual(found["endless"], [8e6] * 4)
        self.assertEqual(workers["slow"].runs, 1 + 4 * 2)
        self.assertEqual(workers["endless"].runs, 1 + 4)


class ReportTest(unittest.TestCase):
    def case(self):
        def entry(length, nimble):
            found, comparison = statistics.summarize(
                {"openvino": [100, 101, 102], "nimble": [nimble] * 3}, ["openvino"], "nimble")
            return {"length": length, "count": 2, "systems": found, **comparison}
        return {"name": "m, 2 threads", "threads": 2, "ratio_to_best_peer": 1.5,
                "ratio_to": {"openvino": 1.5}, "lowest_ratio": 1.01,
                "share_of_lengths_at_least_1": 1.0, "lengths": [entry(10, 50), entry(20, 100)]}

    def test_table_shows_time_per_token_and_ratio(self):
        text = report.table(self.case())
        row = text.splitlines()[2].split()
        self.assertEqual(row[:3], ["10", "2", "10.1"])
        self.assertEqual(row[-1], "2.020")
        self.assertIn("1.500; lowest 1.010", text)

    def test_json_replaces_whole_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "results" / "m.json"
            report.write_json(path, {"a": 1})
            report.write_json(path, {"a": 2})
            self.assertEqual(json.loads(path.read_text()), {"a": 2})
            self.assertEqual([entry.name for entry in path.parent.iterdir()], ["m.json"])


class WeightsTest(unittest.TestCase):
    def test_stream_is_splitmix64(self):
        # Element 0 of stream 5 once more, in Python's exact integers.
        mask = 2**64 - 1
        z = ((5 << 32) * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        z ^= z >> 31
        self.assertEqual(weights.uniform(5, (1,))[0], np.float32((z >> 40) / 2**23 - 1))

    def test_shorter_sequences_are_prefixes_and_match_the_recording(self):
        recorded = np.load(pathlib.Path(__file__).parents[1] / "recordings" / "lstm.npz")["x"]
        np.testing.assert_array_equal(weights.sequence(64), recorded)
        np.testing.assert_array_equal(weights.sequence(7), recorded[:7])

    def test_safetensors_reads_back(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "w.safetensors"
            weights.save_safetensors(path)
            data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        first, last = header["bias_hh"]["data_offsets"]
        np.testing.assert_array_equal(
            np.frombuffer(data[8 + size + first:8 + size + last], "<f4"),
            weights.weights()["bias_hh"])


class TreesTest(unittest.TestCase):
    def test_all_trees_of_the_treebank_are_there(self):
        trees = tree_weights.trees()
        self.assertEqual(sum(len(group) for group in trees.values()), 1101 + 2210)
        for length, group in trees.items():
            for tree in group:
                self.assertEqual(len(tree.parents), 2 * length - 1)
                self.assertEqual(len(tree.words), length)
        first = trees[13][0]
        self.assertTrue(0 <= first.words.min() and first.words.max() < tree_weights.VOCABULARY)

    def test_fold_keeps_the_order_of_words(self):
        tree = tree_weights.Tree(np.array([4, 3, 3, 4, -1]), np.array([7, 8, 9]))
        self.assertEqual(tree_weights.fold(tree, str, lambda a, b: f"({a} {b})"), "(7 (8 9))")
        self.assertEqual(tree_weights.text(tree_weights.Tree(np.array([-1]), np.array([3]))),
                         "Leaf(@words.npy[3:4])")


class SystemsTest(unittest.TestCase):
    def test_peers_keep_their_order(self):
        possible = systems.ONNX_PEERS
        self.assertEqual(systems.parse_peers("openvino,torch", possible), ["torch", "openvino"])
        for text in ("tensorflow", "dynet"):
            with self.assertRaises(ExperimentError):
                systems.parse_peers(text, possible)


class RecordingTest(unittest.TestCase):
    """The LSTM recording against a plain numpy LSTM in double precision."""

    def test_lstm_outputs(self):
        recorded = np.load(pathlib.Path(__file__).parents[1] / "recordings" / "lstm.npz")
        w = {name: value.astype(np.float64) for name, value in weights.weights().items()}
        h = c = np.zeros(weights.HIDDEN)
        for step, x in enumerate(recorded["x"][:, 0].astype(np.float64)):
            gates = w["weight_ih"] @ x + w["weight_hh"] @ h + w["bias_ih"] + w["bias_hh"]
            i, f, g, o = np.split(gates, 4)
            i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
            c = f * c + i * np.tanh(g)
            h = o * np.tanh(c)
            np.testing.assert_allclose(recorded["y"][step, 0], h, atol=1e-6, err_msg=f"step {step}")


if __name__ == "__main__":
    unittest.main()
