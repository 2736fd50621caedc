"""Tests of the image networks' sizes, of how a run goes on after a failure, and of what the page says
of its figures, with numpy alone and systems of paper."""

import contextlib
import io
import pathlib
import tempfile
import types
import unittest
import unittest.mock

import numpy as np

from experiments.harness import run
from experiments.harness.errors import WRONG_RESULT, ExperimentError
from experiments.images import building, kernels, networks, pace, program, tables
from experiments.images.networks import OWN
from experiments.roofline import work
from experiments.test.fakes import FakePool

PACKED = """fn @group(%p0: Tensor[(1, s0, s1, 64), f32], %p1: Tensor[(4, 576, 32), f32], %p2: Tensor[(128), f32]) -> Tensor[(1, floordiv(s0 - 1, 2) + 1, floordiv(s1 - 1, 2) + 1, 128), f32] {
  let %t0: Tensor[(1, floordiv(s0 - 1, 2) + 1, floordiv(s1 - 1, 2) + 1, 128), f32] = packed_conv2d(%p0, %p1, %p2) {dilations = [1, 1], filters = 128, kernel = [3, 3], layout = "panel32", pads = [1, 1, 1, 1], strides = [2, 2]};
  let %t1: Tensor[(1, floordiv(s0 - 1, 2) + 1, floordiv(s1 - 1, 2) + 1, 128), f32] = relu(%t0);
  %t1
}
"""
FIRST = """fn @group(%p0: Tensor[(1, 6, s0, s1), f32], %p1: Tensor[(2, 27, 32), f32], %p2: Tensor[(64), f32]) -> Tensor[(1, floordiv(s0 + 1, 2) - 1, floordiv(s1 + 1, 2) - 1, 64), f32] {
  let %t0: Tensor[(1, floordiv(s0 + 1, 2) - 1, floordiv(s1 + 1, 2) - 1, 64), f32] = packed_conv2d(%p0, %p1, %p2) {dilations = [1, 1], filters = 64, groups = 2, image_layout = "nchw", kernel = [3, 3], layout = "panel32", pads = [0, 0, 0, 0], strides = [2, 2]};
  %t0
}
"""
TILED = """fn @group(%p0: Tensor[(1, s0, s1, 24), f32], %p1: Tensor[(2, 36, 24, 32), f32], %p2: Tensor[(40), f32]) -> Tensor[(1, s0, s1, 40), f32] {
  let %t0: Tensor[(1, s0, s1, 40), f32] = packed_winograd(%p0, %p1, %p2) {filters = 40, layout = "panel32", pads = [1, 1, 1, 1], tile = 4};
  %t0
}
"""
PARTS = """fn @group(%p0: Tensor[(1, s0, 64), f32], %p1: Tensor[(1, s0, 16), f32]) -> (Tensor[(1, s0, 16), f32], Tensor[(1, s0, 8), f32]) {
  let %t0: Tensor[(1, s0, 16), f32] = slice(%p0) {axes = [2], ends = (16), starts = (0), steps = [1]};
  let %t1: Tensor[(1, s0, 8), f32] = slice(%p0) {axes = [2], ends = (24), starts = (16), steps = [1]};
  let %t2: Tensor[(1, s0, 16), f32] = add(%t0, %p1);
  (%t2, %t1)
}
"""
DEPTHWISE = """fn @group(%p0: Tensor[(1, s0, s1, 32), f32], %p1: Tensor[(3, 3, 1, 32), f32]) -> Tensor[(1, s0, s1, 32), f32] {
  let %t0: Tensor[(1, s0, s1, 32), f32] = conv2d(%p0, %p1) {dilations = [1, 1], groups = 32, layout = "nhwc", pads = [1, 1, 1, 1], strides = [1, 1]};
  %t0
}
"""
PLANES = """fn @group(%p0: Tensor[(1, 3, s0, s1), f32], %p1: Tensor[(16, 3, 5, 5), f32]) -> Tensor[(1, 16, s0 - 4, s1 - 4), f32] {
  let %t0: Tensor[(1, 16, s0 - 4, s1 - 4), f32] = conv2d(%p0, %p1) {dilations = [1, 1], groups = 1, pads = [0, 0, 0, 0], strides = [1, 1]};
  %t0
}
"""


def compiled():
    return work.read({"kernels": [
        {"name": name, "source": source, "workload": text,
         "implementations": [{"template": template}]} for name, source, text, template in (
            ("k0", "packed_conv2d+relu", PACKED, "conv2d_nhwc"),
            ("k1", "conv2d", DEPTHWISE, "depthwise_nhwc"), ("k2", "conv2d", PLANES, "conv2d"),
            ("k3", "packed_conv2d", FIRST, "conv2d_nhwc"))]})


class Sizes(unittest.TestCase):
    def test_tuning_sees_no_size_that_is_measured(self):
        tuned, measured = networks.tuned_sizes(), networks.measured_sizes(100)
        self.assertEqual((len(set(tuned)), len(set(measured))), (networks.TRACE_ROWS, 100))
        self.assertFalse({*tuned} & {OWN, *measured})
        self.assertNotIn(OWN, measured)
        extents = {extent for size in measured for extent in size}
        self.assertTrue(networks.LOWEST <= min(extents) < max(extents) <= networks.HIGHEST)
        self.assertTrue(any(extent % 2 for extent in extents))

    def test_fewer_sizes_are_the_first_of_all(self):
        self.assertEqual(networks.measured_sizes(7), networks.measured_sizes(100)[:7])

    def test_a_network_of_one_size_meets_no_other(self):
        self.assertEqual(program.plan_sizes("vit-b", 5), [OWN])
        self.assertEqual(len(program.plan_sizes("resnet-50", 5)), 6)

    def test_images_are_the_same_everywhere(self):
        image = networks.inputs((5, 7))["image"]
        self.assertEqual((image.shape, image.dtype), ((1, 3, 5, 7), np.float32))
        np.testing.assert_array_equal(image, networks.inputs((5, 7))["image"])
        self.assertFalse(np.array_equal(image, networks.inputs((7, 5))["image"].swapaxes(2, 3)))

    def test_the_trace_has_both_extents_in_a_row(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "t.tsv"
            self.assertEqual(networks.write_trace(path), f"{path}:h,w")
            head, *rows = path.read_text().splitlines()
        self.assertEqual((head, len(rows)), ("h\tw", networks.TRACE_ROWS))
        self.assertEqual(rows[3], "\t".join(map(str, networks.tuned_sizes()[3])))

    def test_all_networks_of_the_bars_are_there(self):
        self.assertEqual([name for name, network in networks.NETWORKS.items()
                          if network.least == 1.05],
                         ["resnet-50", "vgg-16", "mobilenet-v2", "squeezenet"])
        self.assertEqual(len(networks.NETWORKS), 12)


class Kernels(unittest.TestCase):
    def test_operations_of_convolutions(self):
        found, at = compiled(), {"s0": 9, "s1": 14}
        self.assertEqual(found["k0"].flops(at), 2 * 576 * 5 * 7 * 128)
        self.assertEqual(found["k1"].flops(at), 2 * 9 * 9 * 14 * 32)
        self.assertEqual(found["k2"].flops(at), 2 * 75 * 16 * 5 * 10)
        self.assertEqual(found["k3"].flops(at), 2 * 27 * 4 * 6 * 64)  # half of 6 channels
        self.assertEqual({kernel.kind for kernel in found.values()}, {"products"})

    def test_labels_have_what_is_fixed(self):
        self.assertEqual([kernel.label for kernel in compiled().values()], [
            "packed_conv2d+relu 3x3 /2x2 64 → 128", "conv2d 3x3 32 → 32", "conv2d 5x5 3 → 16",
            "packed_conv2d 3x3 /2x2 6 → 64"])

    def test_tiles_count_by_their_products(self):
        kernel = work.read({"kernels": [{"name": "k", "source": "packed_winograd",
                                         "workload": TILED,
                                         "implementations": [{"template": "winograd"}]}]})["k"]
        # Four tiles of 36 products each.
        self.assertEqual(kernel.flops({"s0": 8, "s1": 8}), 2 * 4 * 36 * 24 * 40)
        self.assertEqual((kernel.label, kernel.kind), ("packed_winograd 3x3 24 → 40", "products"))

    def test_bytes_are_of_operands_and_results(self):
        found = compiled()["k0"].bytes({"s0": 9, "s1": 14})
        self.assertEqual(found, 4 * (9 * 14 * 64 + 4 * 576 * 32 + 128 + 5 * 7 * 128))

    def test_parts_of_an_operand_are_what_is_read_of_it(self):
        kernel = work.read({"kernels": [{"name": "k", "source": "slice", "workload": PARTS,
                                         "implementations": [{"template": "elementwise"}]}]})["k"]
        self.assertEqual(kernel.bytes({"s0": 5}), 4 * 5 * (16 + 8 + 16 + 16 + 8))

    def test_memories_are_the_nearest_first(self):
        def peak(kind, value, threads=2, dtype="any"):
            return {"kind": kind, "dtype": dtype, "threads": threads, "value": value}
        peaks = [{"ceilings": [peak("compute", 9, dtype="f32"), peak("read_memory", 1),
                               peak("read_l3", 2), peak("read_l2", 4), peak("read_l2", 99, 1)]},
                 {"ceilings": [peak("compute", 8, dtype="f32"), peak("read_memory", 1.5),
                               peak("read_l3", 3), peak("read_l2", 3)]}]
        caches = {"L1 Data": "48K", "L2 Unified": "2M", "L3 Unified": "32M"}
        self.assertEqual(kernels.memories(peaks, 2, caches),
                         [(4 << 20, 4), (32 << 20, 3), (None, 1.5)])
        self.assertEqual(kernels.memories(peaks, 2, {"L1 Data": "48K"}), [(None, 1.5)])

    def test_the_limit_is_the_longer_of_both(self):
        levels = [(100, 50.0), (None, 10.0)]
        self.assertEqual(kernels.limit_us(8, 100, 2.0, levels), 4e6)  # 4 s of products, 2 of reading
        self.assertEqual(kernels.limit_us(8, 101, 2.0, levels), 10.1e6)

    def test_kernels_of_a_label_stand_together(self):
        profile = {"runs": 2, "kernels": [
            {"name": "k1", "count": 4, "total_ns": 8000, "shape": {"s0": 9, "s1": 14}},
            {"name": "k1", "count": 2, "total_ns": 2000, "shape": {"s0": 1, "s1": 1}},
            {"name": "k2", "count": 2, "total_ns": 90_000, "shape": {"s0": 6, "s1": 5}}]}
        calls = kernels.calls_of(compiled(), profile)
        self.assertEqual([call["calls"] for call in calls], [2, 1, 1])
        rows = kernels.against_limits(calls, 1e12, [(None, 1e9)])
        self.assertEqual([row["label"] for row in rows], ["conv2d 5x5 3 → 16", "conv2d 3x3 32 → 32"])
        self.assertEqual((rows[1]["calls"], rows[1]["us"]), (3, 5))
        moved = 2 * 4 * (2 * 9 * 14 * 32 + 9 * 32) + 4 * (2 * 32 + 9 * 32)
        self.assertAlmostEqual(rows[1]["limit_us"], moved / 1e3)
        found = kernels.summarise([{"us": 2.0, "limit_us": 1.0}, {"us": 6.0, "limit_us": 5.0}])
        self.assertEqual(found, {"kernels": 2, "beyond": 1, "share_within": 0.75,
                                 "over": 8 / 6})


def rounds(**milliseconds):
    return {name: [1000.0 * value] * 3 for name, value in milliseconds.items()}


def entry(size, nimble=1.0, default=2.0, **peers):
    found = rounds(nimble=nimble, nimble_default=default, **(peers or {"openvino": 1.0}))
    return tables.summarise_size(size, found, dict.fromkeys(found, {"difference": 1e-6}))


def record(*entries, failure=None, calls=()):
    return {"executables": {}, "tuning": {"outcomes": {"tuned": 3}, "threads": [2]}, "flops": 1e9,
            "done": {tables.key_of(e["size"]): e for e in entries},
            "errors": {"torch_channels_last": "too slow"}, "infos": {}, "calls": list(calls),
            "failure": failure, "ended": True}


def summarise(name, *entries, **more):
    return tables.summarise(name, record(*entries, **more), 1e12, [(None, 1e9)])


def kept(*found):
    return {bar["name"].partition(": ")[0]: bar["kept"] for bar in tables.bars(found)}


class Tables(unittest.TestCase):
    def test_a_size_has_the_best_of_all_peers(self):
        found = entry(OWN, 2.0, 4.0, onnxruntime=5.0, openvino=3.0, torch_channels_last=9.0)
        self.assertEqual(found["best_peer"], "openvino")
        self.assertEqual((found["ratio"], found["default_ratio"]), (1.5, 0.75))
        self.assertEqual(found["systems"]["nimble"]["difference"], 1e-6)
        alone = tables.summarise_size(OWN, rounds(nimble=1.0, openvino=2.0),
                                      {"nimble": {"difference": 0.0}, "openvino": {}})
        self.assertIsNone(alone["default_ratio"])

    def test_spread(self):
        found = tables.spread([1.0] * 10 + [4.0] * 10 + [0.5])
        self.assertAlmostEqual(found["mean"], (4 ** 10 * 0.5) ** (1 / 21))
        self.assertEqual((found["lowest"], found["p5"]), (0.5, 1.0))
        self.assertAlmostEqual(found["share"], 20 / 21)
        self.assertIsNone(tables.spread([]))

    def test_the_mean_over_sizes_has_an_interval(self):
        one = tables.spread([1.25])
        self.assertEqual([round(one[key], 9) for key in ("low", "mean", "high")], [1.25] * 3)
        few, many = (tables.spread([1.0, 1.5] * n) for n in (3, 30))
        self.assertTrue(few["low"] < many["low"] < many["mean"] < many["high"] < few["high"])

    def test_bars_are_of_the_network(self):
        own = entry(OWN, openvino=1.02)
        others = [entry((160 + i, 170), openvino=0.96 if i == 0 else 1.07) for i in range(10)]
        self.assertEqual(kept(summarise("resnet-50", own, *others)), {
            "ResNet-50 at 224 × 224": False, "ResNet-50 over sizes": True})
        self.assertEqual(kept(summarise("googlenet", own, *others)), {
            "GoogLeNet at 224 × 224": True, "GoogLeNet over sizes": True})
        self.assertEqual(kept(summarise("vit-b", own)), {"ViT-B/16 at 224 × 224": True})
        slow = [entry((160 + i, 170), openvino=0.9 if i < 2 else 1.5) for i in range(10)]
        found = tables.bars([summarise("googlenet", own, *slow)])
        self.assertEqual([bar["kept"] for bar in found], [True, True, False])

    def test_a_network_that_nimble_fails_on_keeps_no_bar(self):
        for entries in ((), (entry(OWN, openvino=3.0), entry((161, 162), openvino=3.0))):
            found = tables.bars([summarise("regnet-y-400mf", *entries, failure="nimble: gone")])
            self.assertEqual([bar["kept"] for bar in found], [False] * 3)

    def test_kernels_beyond_their_limits_are_counted(self):
        calls = [{"label": "a", "kind": "products", "calls": 2, "us": 10.0, "flops": 1e6,
                  "bytes": 10},
                 {"label": "b", "kind": "element-wise", "calls": 1, "us": 1.2, "flops": 0,
                  "bytes": 1000}]
        network = summarise("vit-b", entry(OWN), calls=calls)
        self.assertEqual(network["of_kernels"]["beyond"], 1)  # 10 µs of 2, 1.2 µs of 1
        bar = tables.bars([network])[-1]
        self.assertEqual((bar["value"], bar["most"], bar["kept"]), (1, 0, False))
        self.assertEqual([row["label"] for row in network["kernels"]], ["a", "b"])

    def test_a_peak_that_is_none_is_told(self):
        one = summarise("vit-b", entry(OWN, nimble=0.8, openvino=2.0))  # the limit is 1 ms
        self.assertEqual(tables.doubts([one]), ["nimble reaches 125 % of it in ViT-B/16"])
        self.assertEqual(tables.doubts([summarise("vit-b", entry(OWN, 1.1, openvino=1.0))]), [])

    def result(self, *found):
        return {"machine": {"cpu": "c"}, "threads": 2, "tolerance": 1e-4, "range": [160, 320],
                "roof": {"flops": 4e11, "bytes": 2e10, "measured": {"flops": [4e11, 3e11]}},
                "memories": [(4 << 20, 3e11), (None, 2e10)], "networks": list(found),
                "doubts": [], "systems": {"nimble": {"version": "1", "settings": "pinned"}},
                "bars": tables.bars(found)}

    def test_the_page_tells_what_failed(self):
        text = tables.markdown(self.result(
            summarise("resnet-50", entry(OWN, openvino=1.02), entry((160, 161)),
                      calls=[{"label": "conv", "kind": "products", "calls": 2, "us": 10.0,
                              "flops": 1e6, "bytes": 10}]),
            summarise("vit-b", failure="nimble: gone")))
        for part in ("| ResNet-50 | 1.00 | 2.00 | 1.02 | OpenVINO | 1.02 (1.02 – 1.02) | 0.51 | 1.05",
                     "| ResNet-50 | 1 | 1.00 (1.00 – 1.00) | 1.00 | 1.00 | 100 % | 1.05 | 0.50 (0.50",
                     "- ResNet-50, torch.compile: too slow", "- ViT-B/16: nimble: gone",
                     "Of 224 × 224 alone, by their architecture: ViT-B/16.",
                     "| ResNet-50: conv | 2 | 10.0 | 2.0 | 5.00 |", "(to 4 MiB 300, beyond 20 GB/s)",
                     "- ViT-B/16 at 224 × 224: best peer / nimble: –, at least 1.00: not kept",
                     "times their limit: 1, at most 0: not kept"):
            self.assertIn(part, text)


class Winograd(unittest.TestCase):
    def entry(self, size, plain, **tiled):
        found = rounds(nimble=plain, nimble_default=2.0, openvino=1.0, **tiled)
        one = tables.summarise_size(size, found, dict.fromkeys(found, {}))
        one["errors"] = {"torch": 1e-7, "nimble": 2e-7} | {
            name: 1e-6 * milliseconds for name, milliseconds in tiled.items()}
        return one

    def test_times_and_errors_stand_apart(self):
        own = self.entry(OWN, 3.0, nimble_winograd_2=2.0, nimble_winograd_4=1.5)
        other = self.entry((170, 180), 4.0, nimble_winograd_2=8.0, nimble_winograd_4=2.0)
        alone = self.entry((171, 180), 4.0, nimble_winograd_2=2.0)
        network = summarise("resnet-50", own, other, alone)
        text = "\n".join(tables.winograd_lines([network]))
        for part in ("| ResNet-50 | nimble, tiles of 2 × 2 | 3.00 | 2.00 | 1.50 | 1.00 | 8.0e-06 | "
                     "2.0e-07 | 1.0e-07 |",
                     "| ResNet-50 | nimble, tiles of 4 × 4 | 3.00 | 1.50 | 2.00 | 2.00 | 2.0e-06 |"):
            self.assertIn(part, text)
        self.assertNotIn("tiles", tables.own_table([network], tables.SHOWN))
        self.assertEqual(own["ratio_to"], {"openvino": 1 / 3})
        self.assertFalse(any("tiles" in bar["name"] for bar in tables.bars([network])))

    def test_unasked_there_is_no_table(self):
        self.assertEqual(tables.winograd_lines([summarise("resnet-50", entry(OWN))]), [])

    def test_each_size_of_tiles_is_tuned_and_compiled(self):
        calls = []
        with unittest.mock.patch.object(building, "build_tuned",
                                        lambda *all_of: calls.append(all_of[-1])), \
                unittest.mock.patch.object(building, "compile_network",
                                           lambda *all_of: calls.append(all_of[2:])):
            for untuned in (False, True):
                files = building.build_winograd("vgg-16", types.SimpleNamespace(untuned=untuned),
                                                None)
                self.assertEqual([path.name for path in files.values()],
                                 ["vgg-16-winograd-2.nimble", "vgg-16-winograd-4.nimble"])
        self.assertEqual(calls, [("--winograd", "2"), ("--winograd", "4"),
                                 (None, ("--winograd", "2")), (None, ("--winograd", "4"))])

    def test_it_is_asked_for(self):
        self.assertFalse(program.parse_arguments([]).winograd)
        self.assertTrue(program.parse_arguments(["--winograd"]).winograd)
        for more, stem, references in (([], "images-part", ("torch",)),
                                       (["--winograd"], "images-winograd-part",
                                        ("torch", "torch_f64"))):
            made = program.Run(program.parse_arguments(["--threads", "1", *more]), more)
            self.assertEqual((made.stem, made.REFERENCES), (stem, references))
            self.assertEqual(made.settings()["winograd"], list(tables.WINOGRAD) if more else [])

    def test_a_network_without_tables_is_measured_by_default_schedules(self):
        kernel = {"outcome": "default", "template": "dense", "threads": []}
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.object(building, "compile_network",
                                           lambda *_: {"kernels": [kernel, kernel]}), \
                unittest.mock.patch("experiments.harness.models.run_nimble") as tuned, \
                contextlib.redirect_stderr(said):
            options = types.SimpleNamespace(database=pathlib.Path(folder) / "tuning.db",
                                            threads=2, tune=None)
            found = building.build_tuned("vgg-16", "vgg-16.nimble", options, pace.Pace(60, 1))
        self.assertEqual(tuned.call_count, 1)
        self.assertEqual(found, {"outcomes": {"default": 2}, "threads": []})
        self.assertIn("going on with default schedules", said.getvalue())

    def test_a_label_names_the_results(self):
        more = ["--only", "resnet-50", "--label", "one-machine"]
        self.assertEqual(program.Run(program.parse_arguments(more), more).stem,
                         "images-one-machine")
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
            program.parse_arguments(["--label", "../elsewhere"])


class Paces(unittest.TestCase):
    def setUp(self):
        self.now = 0.0

    def pace(self, *arguments, **more):
        return pace.Pace(*arguments, clock=lambda: self.now, **more)

    def test_what_a_network_leaves_the_next_ones_have(self):
        found = self.pace(900, 3)
        self.assertEqual((found.share, found.tuning_seconds()), (300, 90))
        self.now = 100
        found.ended()
        found.begin()
        self.assertEqual((found.share, found.end), (400, 500))
        self.now = 860  # far beyond its part
        found.ended()
        found.begin()
        self.assertEqual((found.share, found.compile_seconds(400)), (pace.LEAST_SHARE, 42))
        self.assertEqual(found.left_text(), "0:00:40 left at most")

    def test_an_interrupted_run_has_what_is_left(self):
        found = self.pace(900, 2, spent=500.0)
        self.assertEqual((found.share, found.left()), (200, 400))
        self.now = 1000
        self.assertEqual((found.spent(), found.left()), (1500, 0))

    def test_tuning_that_was_asked_for_comes_on_top(self):
        found = self.pace(300, 1)
        self.now = 250
        found.exempt(200)
        self.assertEqual((found.left(), found.end), (250, 500))

    def test_a_network_ends_with_its_time_but_not_without_some_sizes(self):
        found = self.pace(200, 1)
        found.start_measuring()
        self.now = 199
        self.assertFalse(found.is_over(pace.FEWEST_SIZES))
        self.now = 201
        self.assertTrue(found.is_over(pace.FEWEST_SIZES))
        self.assertFalse(found.is_over(pace.FEWEST_SIZES - 1))

    def test_measuring_may_be_bounded_by_itself(self):
        found = self.pace(10_000, 2, measuring=60, measured=20.0)
        self.now = 500
        found.start_measuring()
        self.now = 610
        found.pass_over(100)  # what a peer compiled
        self.assertFalse(found.is_over(9))
        self.now = 620
        self.assertTrue(found.is_over(9))
        found.ended()
        self.assertEqual(found.measured, 40)
        found.begin()
        self.assertEqual(found.measuring_share, 20)

    def test_a_run_that_tunes_nothing_ends_within_its_time(self):
        """Of twelve networks some of which take all that they may."""
        found = self.pace(5400, 12)
        for number in range(12):
            found.begin()
            found.start_measuring()
            sizes = 0
            while not found.is_over(sizes) and sizes < 100:
                sizes += 1
                self.now += 1 + 6 * (number % 3)
            found.ended()
        self.assertLess(self.now, 5400 + 13)


class FakeWorker:
    """Answers like pool.Worker. fails: {size: message}; off: error of all results; compile_s:
    seconds of a first check."""

    def __init__(self, system, clock, fails=(), wrong=(), compile_s=0.0, off=0.0):
        self.system, self.clock, self.fails, self.wrong = system, clock, dict(fails), wrong
        self.compile_s, self.limits, self.off = compile_s, [], off

    def ask(self, method, *arguments, seconds=None):
        if method == "info":
            return {"version": "1", "settings": "as it is"}
        size = arguments[0]
        if size in self.fails:
            raise ExperimentError(f"{self.system}: {self.fails[size]}; see /a/log",
                                  system=self.system)
        if method == "check":
            if seconds is not None:
                self.limits.append(seconds)
                self.clock.now += self.compile_s
            return np.ones(3) * (2 if size in self.wrong else 1) + self.off
        if method == "profile":
            return {"runs": 1, "kernels": []}
        self.clock.now += 1.0
        return [1_000_000] * arguments[2]

    def confine(self):
        pass

    def close(self):
        pass


class Running(unittest.TestCase):
    def setUp(self):
        self.clock = types.SimpleNamespace(now=0.0)

    def worker(self, system, **more):
        return FakeWorker(system, self.clock, **more)

    def measure(self, sizes=3, seconds=None, total=1e6, winograd=(), **workers):
        """Returns what is known of the network; self.seconds are those that count as measured."""
        made = {name: self.worker(name) for name in ("torch", "nimble", "nimble_default")} | workers
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        running = program.Run.__new__(program.Run)
        network = program.Measured("resnet-50")
        running.options = types.SimpleNamespace(names=["resnet-50"], threads=1, within=None,
                                                untuned=False, tune=None, total="90m")
        running.peers = [name for name in program.systems.IMAGE_PEERS if name in made]
        running.networks, running.cores, running.count = [network], [0], sizes
        running.winograd = winograd
        running.REFERENCES = ("torch", *(["torch_f64"] if winograd else []))
        running.effort = {"rounds": 3, "own_rounds": 4, "burst_us": 1000, "compile_s": 99}
        running.peaks = []
        running.machine, running.provenance = {"cpu": "x"}, {"commit": "c"}
        running.partial = pathlib.Path(folder.name) / "partial.json"
        running.prepare = lambda _: ({"nimble": "n", "nimble_default": "d"}
                                     | dict.fromkeys(winograd, "w"), "y")
        running.measure_peak = lambda: None
        running.pace = pace.Pace(total, 1, measuring=seconds, clock=lambda: self.clock.now)
        with unittest.mock.patch.object(program.pool, "Pool", lambda: FakePool(made)), \
                unittest.mock.patch("experiments.roofline.program.inspect", lambda *_: {}), \
                contextlib.redirect_stderr(io.StringIO()):
            try:
                running.measure_network(network, program.plan_sizes("resnet-50", sizes))
            finally:
                self.seconds = running.pace.measured
        return network.record

    def test_all_systems_but_the_reference_are_timed(self):
        found = self.measure(onnxruntime=self.worker("onnxruntime"))
        self.assertEqual(len(found["done"]), 4)
        self.assertEqual(set(found["done"]["224x224"]["systems"]),
                         {"nimble", "nimble_default", "onnxruntime"})
        self.assertEqual(found["errors"], {})
        self.assertIn("torch", found["infos"])
        rounds = {key: len(entry["systems"]["nimble"]["samples"])
                  for key, entry in found["done"].items()}
        self.assertEqual((rounds.pop("224x224"), set(rounds.values())), (4, {3}))

    def test_a_peer_that_fails_keeps_what_it_had(self):
        second = networks.measured_sizes(3)[0]
        found = self.measure(
            onnxruntime=self.worker("onnxruntime"), openvino="no such operator",
            torch_channels_last=self.worker("torch_channels_last", fails={second: "too slow"}))
        self.assertEqual(found["errors"], {"openvino": "no such operator",
                                           "torch_channels_last": "too slow"})
        self.assertEqual(["torch_channels_last" in entry["systems"]
                          for entry in found["done"].values()], [True, False, False, False])

    def test_a_wrong_result_of_nimble_ends_the_network(self):
        wrong = self.worker("nimble", wrong=(networks.measured_sizes(3)[1],))
        with self.assertRaises(ExperimentError) as caught:
            self.measure(onnxruntime=self.worker("onnxruntime"), nimble=wrong)
        self.assertEqual(caught.exception.code, WRONG_RESULT)

    def test_tiles_have_a_tolerance_of_their_own(self):
        tiles = ("nimble_winograd_2", "nimble_winograd_4")
        second = networks.measured_sizes(3)[0]
        found = self.measure(
            winograd=tiles, onnxruntime=self.worker("onnxruntime"),
            torch_f64=self.worker("torch_f64"),
            nimble_winograd_2=self.worker("nimble_winograd_2", off=1e-3),
            nimble_winograd_4=self.worker("nimble_winograd_4", wrong=(second,)))
        own, other = (found["done"][tables.key_of(size)] for size in (OWN, second))
        self.assertAlmostEqual(own["errors"]["nimble_winograd_2"], 1e-3)
        self.assertEqual(own["errors"]["nimble"], 0)
        self.assertTrue(set(tiles) <= set(own["systems"]))
        self.assertNotIn("torch_f64", own["systems"])
        self.assertEqual(own["ratio_to"].keys(), {"onnxruntime"})
        self.assertNotIn(tiles[1], other["systems"])  # that was wrong there
        self.assertEqual(list(found["errors"]), [tiles[1]])

    def test_without_what_they_are_compared_with_tiles_tell_nothing(self):
        with self.assertRaises(ExperimentError):
            self.measure(winograd=("nimble_winograd_2",),
                         nimble_winograd_2=self.worker("nimble_winograd_2"),
                         torch_f64=self.worker("torch_f64", fails={OWN: "out of memory"}))

    def test_what_peers_compile_counts_for_no_time(self):
        slow = self.worker("torch_channels_last", compile_s=1000.0)
        found = self.measure(sizes=30, seconds=200, torch_channels_last=slow)
        self.assertEqual(slow.limits, [99, 99])  # at 224 and at the first other size
        self.assertTrue(5 <= len(found["done"]) < 31)
        self.assertTrue(200 <= self.seconds < 1000)

    def test_the_time_of_all_ends_a_network_whatever_took_it(self):
        slow = self.worker("torch_channels_last", compile_s=1000.0)
        found = self.measure(sizes=30, total=2200, torch_channels_last=slow)
        self.assertTrue(5 <= len(found["done"]) < 31)
        self.assertTrue(2200 <= self.clock.now < 2300)

    def test_arguments(self):
        options = program.parse_arguments(["--only", "vit-b,resnet-50", "--within", "6m"])
        self.assertEqual((options.names, options.total), (["resnet-50", "vit-b"], "90m"))
        self.assertEqual(program.parse_arguments(["--networks", "vit-b"]).names, ["vit-b"])
        self.assertEqual(program.parse_arguments(["--quick"]).names, ["mobilenet-v2", "squeezenet"])
        self.assertEqual(program.parse_arguments([]).names, list(networks.NETWORKS))
        for wrong in (["--only", "lenet"], ["--sizes", "-1"], ["--tune", "5m", "--untuned"],
                      ["--within", "soon"]):
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
                program.parse_arguments(wrong)
            self.assertEqual(ended.exception.code, 2)

    def test_executables_of_an_interrupted_run_count_while_they_are_the_same(self):
        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.object(program, "FOLDER", pathlib.Path(folder)):
            path = pathlib.Path(folder) / "n.nimble"
            path.write_text("code")
            network = program.Measured("resnet-50")
            self.assertIsNone(network.files())
            network.record["executables"] = {"nimble": ["n.nimble", run.digest(path)]}
            self.assertEqual(network.files(), {"nimble": path})
            path.write_text("other code")
            self.assertIsNone(network.files())

    def test_tuning_is_told_the_sizes_where_there_are_several(self):
        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.object(building, "FOLDER", pathlib.Path(folder)):
            words = building.tune_command("resnet-50", "t.db", 2, "15m")
            self.assertTrue(words[-1].endswith("tuned-sizes.tsv:h,w"))
            self.assertIn("15m", words)
            self.assertNotIn("--trace", building.tune_command("vit-b", "t.db", 2, "15m"))


if __name__ == "__main__":
    unittest.main()
