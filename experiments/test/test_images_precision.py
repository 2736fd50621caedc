"""Tests of the image networks in narrow types, with numpy alone and systems of paper."""

import contextlib
import io
import pathlib
import tempfile
import types
import unittest
import unittest.mock

import numpy as np

from experiments.harness import systems
from experiments.harness.errors import ExperimentError
from experiments.images import building, networks, pace, tables as image_tables
from experiments.images.networks import OWN
from experiments.images_precision import models, program, tables
from experiments.images_precision.models import CASES, KINDS, Case
from experiments.precision.models import EXACT, SINGLE
from experiments.test.fakes import FakePool

EXPECTED = np.linspace(1.0, 2.0, 50)


class FakeWorker:
    """Answers like pool.Worker: the expected result times 1 + error."""

    def __init__(self, system, error=0.0):
        self.system, self.error, self.asked, self.fails = system, error, [], None

    def ask(self, method, *arguments, seconds=None):
        self.asked.append(method)
        if method == self.fails:
            raise ExperimentError(f"{self.system}: no way; see /a/log", system=self.system)
        if method == "info":
            return {"version": "1", "settings": "as it is"}
        if method == "check":
            return EXPECTED * (1 + self.error)
        if method == "outputs":
            return np.tile(EXPECTED, (arguments[1], 1)) * (1 + self.error)
        return [1_000_000] * arguments[2]

    def confine(self):
        pass

    def close(self):
        pass


class Models(unittest.TestCase):
    def test_cases_are_of_known_networks_and_systems(self):
        self.assertEqual(len(CASES), len(networks.NETWORKS) + 2)
        for name, case in CASES.items():
            self.assertEqual(name, f"{case.network}-{case.kind}")
            self.assertIn(case.network, networks.NETWORKS)
            self.assertIn(case.precision.nimble, systems.NIMBLE)
            self.assertTrue(set(case.precision.rivals) <= set(systems.PEERS))
        self.assertEqual({name for name in CASES if name.endswith("int8")},
                         {"resnet-50-int8", "mobilenet-v2-int8"})

    def test_the_quantiser_sees_no_image_that_is_measured_or_classified(self):
        seen = [inputs["image"] for inputs in models.calibration()]
        others = [networks.inputs(OWN, number)["image"] for number in range(models.CLASSIFIED + 1)]
        self.assertEqual(len(seen), models.CALIBRATED)
        for one in seen:
            self.assertFalse(any(np.array_equal(one, other) for other in others))
        self.assertEqual(len({image.tobytes() for image in (*seen, *others)}),
                         len(seen) + len(others))

    def test_arguments(self):
        options = program.parse_arguments(["--only", "resnet-50-int8,vit-b-bf16"])
        self.assertEqual(options.names, ["vit-b-bf16", "resnet-50-int8"])
        self.assertEqual(program.parse_arguments(["--quick"]).names,
                         ["mobilenet-v2-bf16", "mobilenet-v2-int8"])
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            program.parse_arguments(["--winograd"])  # those are of f32


def entry(size, ours=1.0, error=1e-3, kind="bf16", **peers):
    precision = KINDS[kind].precision
    peers = peers or {precision.rivals[0]: 1.0}
    rounds = {name: [1000.0 * value] * 3
              for name, value in {precision.nimble: ours, **peers}.items()}
    figures = {name: {"relative_error": error if name == precision.nimble else 1e-3,
                      "difference": 0.01} for name in rounds}
    run = program.Run.__new__(program.Run)
    return run.summarise_size(types.SimpleNamespace(case=Case("resnet-50", kind)), size, rounds,
                              figures)


def summarise(*entries, kind="bf16", failure=None):
    record = {"done": {image_tables.key_of(e["size"]): e for e in entries}, "failure": failure,
              "errors": {"onnxruntime_bf16": "not implemented"}, "tolerances": {},
              "tuning": {"outcomes": {"tuned": 3}, "threads": [2]},
              "agreement": {KINDS[kind].precision.nimble: {"top1": 0.75, "relative_error": 0.1}}}
    return tables.summarise(Case("resnet-50", kind), record)


class Tables(unittest.TestCase):
    def kept(self, *found):
        return [bar["kept"] for bar in tables.bars(found)]

    def test_classes_are_those_of_the_exact_result(self):
        exact = np.array([[1.0, 2.0, 0.0], [5.0, 2.0, 0.0], [0.0, 1.0, 3.0], [0.0, 4.0, 3.0]])
        found = tables.agreement({"exact": exact, "near": exact + 0.5, "far": exact[:, ::-1]},
                                 "exact")
        self.assertEqual([found[name]["top1"] for name in ("exact", "near", "far")], [1, 1, 0.5])
        self.assertEqual(found["exact"]["relative_error"], 0)
        self.assertAlmostEqual(found["near"]["relative_error"], np.sqrt(3 / np.sum(exact ** 2)))

    def test_bars(self):
        sizes = [entry((160 + i, 170), 0.5) for i in range(3)]
        self.assertEqual(self.kept(summarise(entry(OWN), *sizes)), [True] * 3)
        self.assertEqual(self.kept(summarise(entry(OWN, 1.1), *sizes)), [False, True, True])
        self.assertEqual(self.kept(summarise(entry(OWN), entry((161, 170), 2.0))),
                         [True, False, True])
        self.assertEqual(self.kept(summarise(entry(OWN, error=1.3e-3))), [True, False])
        self.assertEqual(self.kept(summarise(entry(OWN, error=1.2e-3))), [True, True])
        self.assertEqual(self.kept(summarise(entry(OWN, error=1.2e-3, kind="int8"), kind="int8")),
                         [True, False])
        self.assertEqual(self.kept(summarise(entry(OWN), failure="nimble: gone")), [False] * 2)
        self.assertEqual(self.kept(summarise(failure="nimble: gone")), [False] * 2)

    def test_the_page(self):
        found = [summarise(entry(OWN, 0.5, onnxruntime_bf16=2.0, openvino_bf16=1.0),
                           entry((161, 170), 0.8)),
                 summarise(entry(OWN, kind="int8"), kind="int8"),
                 summarise(kind="int8", failure="nimble: gone")]
        text = tables.markdown({
            "machine": {"cpu": "c"}, "threads": 2, "range": [160, 320], "networks": found,
            "cases_of": {"calibrated": 16, "classified": 32},
            "systems": {"nimble_bf16": {"version": "1", "settings": "pinned"}},
            "bars": tables.bars(found)})
        for part in ("| ResNet-50, bf16 | 0.50 | 1.00 | - | 2.00 | OpenVINO bf16 | 2.00 (2.00 – 2.00)"
                     " | 1 | 1.25 (1.25 – 1.25) | 1.25 |", "1 of 1 reach the aim of 1.2",
                     "0 of 2 reach the aim", "| 1.0e-03 (75 %) |", "- ResNet-50, int8: nimble: gone",
                     "- ResNet-50, bf16, ONNX Runtime bf16: not implemented",
                     "best peer / nimble: 2.000, at least 1.00: kept",
                     "at the worst size: –, at most 1.1: not kept"):
            self.assertIn(part, text)


class Running(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def make_run(self, *arguments):
        found = program.Run(program.parse_arguments(
            ["--threads", "1", "--sizes", "2", "--quick", *arguments]), arguments)
        found.partial = self.folder / "partial.json"
        found.pace = pace.Pace(1e6, 1)
        return found

    def measure(self, found, made):
        network, self.pool = found.networks[0], FakePool(made)
        found.prepare = lambda _: ({network.case.precision.nimble: "n.nimble"}, "y")
        with unittest.mock.patch.object(program.images.pool, "Pool", lambda: self.pool), \
                unittest.mock.patch.object(program.Run, "quantise", lambda *_: "static.onnx"), \
                contextlib.redirect_stderr(io.StringIO()):
            found.measure_network(network, program.images.plan_sizes(network.network, 2))
            return network.record

    def workers(self, **errors):
        return {name: FakeWorker(name, error)
                for name, error in {EXACT: 0.0, SINGLE: 1e-6, **errors}.items()}

    def test_a_case_has_the_peers_of_its_type_and_all_read_one_file(self):
        made = self.workers(nimble_int8=0.01, onnxruntime_qdq=0.02, openvino_qdq=0.01)
        found = self.make_run("--only", "mobilenet-v2-int8")
        record = self.measure(found, made)
        self.assertEqual(list(self.pool.started), list(made))
        self.assertEqual({name: told[5]["onnx_model"] == "static.onnx"
                          for name, told in self.pool.started.items()},
                         {EXACT: False, SINGLE: False, "nimble_int8": True, "onnxruntime_qdq": True,
                          "openvino_qdq": True})
        self.assertEqual(len(record["done"]), 3)
        own = record["done"]["224x224"]
        self.assertEqual(set(own["systems"]), {"nimble_int8", "onnxruntime_qdq", "openvino_qdq"})
        self.assertAlmostEqual(own["systems"]["onnxruntime_qdq"]["relative_error"], 0.02)
        self.assertEqual([worker.asked.count("outputs") for worker in made.values()], [1] * 5)
        self.assertEqual(record["agreement"]["openvino_qdq"]["top1"], 1)
        result = found.assemble()
        self.assertEqual([bar["kept"] for bar in result["bars"]], [True] * 3)

    def test_a_peer_that_fails_or_is_wrong_is_listed(self):
        made = self.workers(nimble_bf16=1e-3, openvino_bf16=1e-3, torch_channels_last_bf16=0.5,
                            onnxruntime_bf16=1e-3)
        made["onnxruntime_bf16"].fails = "check"
        record = self.measure(self.make_run("--only", "mobilenet-v2-bf16"), made)
        self.assertEqual(set(record["errors"]), {"onnxruntime_bf16", "torch_channels_last_bf16"})
        self.assertEqual(record["errors"]["onnxruntime_bf16"], "no way")

    def test_nimble_that_is_wrong_ends_the_case(self):
        made = self.workers(nimble_bf16=0.5, openvino_bf16=1e-3, torch_channels_last_bf16=1e-3,
                            onnxruntime_bf16=1e-3)
        with self.assertRaisesRegex(ExperimentError, "nimble_bf16: at length"):
            self.measure(self.make_run("--only", "mobilenet-v2-bf16"), made)

    def test_nimble_is_compiled_and_tuned_as_the_type_asks(self):
        commands = []
        with unittest.mock.patch.object(building, "compile_network",
                                        lambda *arguments: commands.append(arguments)), \
                unittest.mock.patch.object(program.Run, "quantise", lambda *_: "static.onnx"):
            for name, source, more in (
                    ("mobilenet-v2-bf16", building.FOLDER / "mobilenet-v2.onnx",
                     ("--precision", "bf16")), ("mobilenet-v2-int8", "static.onnx", ())):
                found = self.make_run("--only", name, "--untuned")
                files, _ = found.build(found.networks[0])
                self.assertEqual(commands.pop(), (source, *files.values(), None, more))
        self.assertEqual(building.tune_command("vit-b", "t.db", 2, "9s", ("--precision", "bf16"),
                                               "q.onnx")[1:],
                         ["q.onnx", "--db", "t.db", "--threads", "2", "--budget", "9s",
                          "--precision", "bf16"])


if __name__ == "__main__":
    unittest.main()
