"""Tests of the models in narrow types that peers get, and of trying what is fastest, with numpy alone;
those of ONNX files need onnx and are skipped without it."""

import contextlib
import importlib.util
import io
import pathlib
import tempfile
import types
import unittest
import unittest.mock

import numpy as np

from experiments.peers import trial
from experiments.precision import quantise


class Quantised(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.source = pathlib.Path(folder.name) / "model.onnx"
        self.source.write_bytes(b"a model")

    def test_columns_have_scales_of_their_own(self):
        weights = np.array([[1.0, -300.0, 0.0], [-0.5, 100.0, 0.0]], np.float32)
        integers, scales = quantise.quantise_columns(weights)
        self.assertEqual(integers.tolist(), [[127, -127, 0], [-64, 42, 0]])
        self.assertEqual(integers.dtype, np.int8)
        half = scales / 2 * (1 + 1e-6)
        self.assertTrue(np.all(np.abs(integers * scales - weights) <= half))

    def test_samples_come_back_in_their_order(self):
        samples = [{"a/b": np.full((1, n), n), "mask": np.ones((1, n), np.int64)}
                   for n in range(11, 0, -1)]
        path = self.source.with_suffix(".npz")
        quantise.write_samples(path, samples)
        found = quantise.read_samples(path)
        self.assertEqual([one["a/b"].shape[1] for one in found], list(range(11, 0, -1)))
        self.assertEqual(found[3]["mask"].dtype, np.int64)

    def make(self, script, kind="static", samples=({"x": np.ones(2)},)):
        """Makes with a shell script in the place of the quantiser; returns (file, how often)."""
        calls = []

        def run(command, **more):
            calls.append(command)
            return subprocess_run(["sh", "-c", script, "sh", *command[4:]], **more)
        subprocess_run = quantise.subprocess.run
        with unittest.mock.patch.object(quantise.subprocess, "run", run), \
                contextlib.redirect_stderr(io.StringIO()):
            return quantise.make(kind, self.source, samples), len(calls)

    def test_a_file_is_made_once_for_a_model_and_its_samples(self):
        write = 'cp "$1" "$2"; test -s "$3"'
        file, calls = self.make(write)
        self.assertEqual((file.name, calls), ("model-static.onnx", 1))
        self.assertEqual(file.read_bytes(), b"a model")
        self.assertEqual(self.make(write)[1], 0)
        self.assertEqual(self.make(write, samples=({"x": np.zeros(2)},))[1], 1)
        self.source.write_bytes(b"another")
        self.assertEqual(self.make(write)[1], 1)
        self.assertEqual(sorted(path.name for path in self.source.parent.iterdir()),
                         ["model-static.onnx", "model-static.sha256", "model.onnx"])

    def test_a_quantiser_that_fails_is_quoted_and_leaves_nothing_to_go_on_from(self):
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, r"quantising \(nncf\) ended with 3: no way"):
                self.make('echo "no   way" >&2; touch "$2"; exit 3', "nncf")

    @unittest.skipUnless(importlib.util.find_spec("onnx"), "needs onnx")
    def test_constants_of_products_become_integers(self):
        import onnx
        from onnx import helper, numpy_helper
        from onnx.reference import ReferenceEvaluator
        weights = np.random.default_rng(3).standard_normal((6, 5)).astype(np.float32)
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["a"]),
             helper.make_node("MatMul", ["x", "w"], ["b"]),
             helper.make_node("Transpose", ["b"], ["c"]),
             helper.make_node("MatMul", ["a", "c"], ["y"])], "g",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 6])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", "n"])],
            [numpy_helper.from_array(weights, "w")])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)]),
                  self.source)
        target = self.source.with_name("narrow.onnx")
        quantise.weights_alone(self.source, target)
        narrow = onnx.load(target)
        self.assertEqual([node.op_type for node in narrow.graph.node].count("DequantizeLinear"), 1)
        self.assertEqual({tensor.name: tensor.data_type for tensor in narrow.graph.initializer},
                         {"w_i8": onnx.TensorProto.INT8, "w_scales": onnx.TensorProto.FLOAT})
        x = np.random.default_rng(4).standard_normal((3, 6)).astype(np.float32)
        integers, scales = quantise.quantise_columns(weights)
        product = x @ (integers * scales)
        np.testing.assert_allclose(ReferenceEvaluator(narrow).run(None, {"x": x})[0],
                                   product @ product.T, rtol=1e-4, atol=1e-4)


    @unittest.skipUnless(importlib.util.find_spec("onnx") and importlib.util.find_spec("ml_dtypes"),
                         "needs onnx and ml_dtypes")
    def test_products_and_convolutions_become_bf16(self):
        """Of a convolution behind a convolution, one with a bias, and a product."""
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        from experiments.precision import onnx_bf16
        random = np.random.default_rng(5)
        constants = {"k": (4, 3, 1, 1), "l": (2, 4, 3, 3), "b": (2,), "w": (5, 6)}
        graph = helper.make_graph(
            [helper.make_node("Conv", ["x", "k"], ["first"]),
             helper.make_node("Conv", ["first", "l", "b"], ["second"], pads=[1, 1, 1, 1]),
             helper.make_node("Relu", ["first"], ["other"]),
             helper.make_node("MatMul", ["second", "w"], ["y"])], "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 5, 5])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 5, 6]),
             helper.make_tensor_value_info("other", TensorProto.FLOAT, [1, 4, 5, 5])],
            [numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
             for name, shape in constants.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]),
                  self.source)
        target = self.source.with_name("narrow.onnx")
        onnx_bf16.convert(self.source, target)
        narrow = onnx.load(target)
        onnx.checker.check_model(narrow, full_check=True)  # names, types
        self.assertEqual({tensor.data_type for tensor in narrow.graph.initializer},
                         {TensorProto.BFLOAT16})
        kinds = [node.op_type for node in narrow.graph.node]
        self.assertEqual([kinds.count(kind) for kind in ("Conv", "MatMul", "Cast")], [2, 1, 6])
        pads = [list(node.attribute[0].ints) for node in narrow.graph.node
                if node.op_type == "Conv" and node.attribute]
        self.assertEqual(pads, [[1, 1, 1, 1]])


class Trials(unittest.TestCase):
    class Peer:
        """Takes the seconds that it was loaded with."""

        def __init__(self, clock):
            self.clock, self.loaded = clock, []

        def load(self, seconds):
            if seconds is None:
                raise ValueError("none")
            self.loaded.append(seconds)

        def bind(self, inputs):
            self.inputs = inputs

        def run(self):
            self.clock.now += self.loaded[-1]

    def try_all(self, **variants):
        clock = types.SimpleNamespace(now=0.0)
        peer = self.Peer(clock)
        with unittest.mock.patch.object(trial.time, "perf_counter", lambda: clock.now):
            return peer, trial.Trial(peer, variants, peer.load, "x")

    def test_the_fastest_is_left_loaded(self):
        peer, found = self.try_all(slow=0.5, fast=0.25, slower=0.75)
        self.assertEqual((found.chosen, peer.loaded, peer.inputs), ("fast", [0.5, 0.25, 0.75, 0.25],
                                                                   "x"))
        self.assertIn("fast (at 53 tokens 500.0 ms slow, 250.0 ms fast", found.text())
        self.assertEqual(self.try_all(slow=0.5, fast=0.25)[0].loaded, [0.5, 0.25])

    def test_one_that_fails_leaves_the_others(self):
        peer, found = self.try_all(slow=0.5, none=None)
        self.assertEqual((found.chosen, found.failed, peer.loaded),
                         ("slow", {"none": "ValueError"}, [0.5, 0.5]))
        with self.assertRaisesRegex(ValueError, "none"):
            self.try_all(none=None, neither=None)


if __name__ == "__main__":
    unittest.main()
