"""Kernels beside NVIDIA's libraries (experiments/gpu/vendor.py)."""

import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import numpy as np  # noqa: E402

from experiments.gpu import models, vendor  # noqa: E402


class Programs(unittest.TestCase):
    def test_inputs_are_those_of_the_program(self):
        for kernel in vendor.kernels().values():
            parameters = re.search(r"fn @main\((.*)\) \{", kernel.text)[1]
            found = re.findall(r"%(\w+): Tensor\[\(([^)]*)\)", parameters)
            for size in kernel.sizes:
                arrays = kernel.inputs(size)
                self.assertEqual(set(arrays), {name for name, _ in found}, kernel.name)
                for name, dims in found:
                    wanted = [size if d == "n" else int(d) for d in dims.split(", ")]
                    self.assertEqual(list(arrays[name].shape), wanted, f"{kernel.name}: {name}")


class Libraries(unittest.TestCase):
    def test_those_of_wheels_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "nvidia" / "cublas" / "lib" / "libcublasLt.so.12"
            file.parent.mkdir(parents=True)
            file.write_bytes(b"")
            environment = {"NIMBLE_CUDNN": "mine"}
            vendor.find_libraries(environment, ["/nowhere", folder])
            self.assertEqual(environment, {"NIMBLE_CUDNN": "mine", "NIMBLE_CUBLASLT": str(file)})
            environment = {}
            vendor.find_libraries(environment, ["/nowhere"])
            self.assertEqual(environment, {})


class Session:
    """A session whose kernel takes `ns` and is an implementation of this name."""

    def __init__(self, file, implementation, ns, values):
        self.file, self.implementation, self.ns, self.values = file, implementation, ns, values
        self.runs = 0

    def bind(self, inputs):
        del inputs
        session = self

        class Call:
            def run(self):
                session.runs += 1

            def outputs(self):
                return {"y": np.array(session.values, np.float32)}
        return Call()

    def set_profiling(self, on):
        if on:
            self.runs = 0

    def profile(self):
        return {"kernels": [{"name": "k0_matmul", "implementation": self.implementation,
                             "count": 2 * self.runs, "total_ns": 2 * self.runs * self.ns},
                            {"name": "k1_sum", "implementation": "sum", "count": 1,
                             "total_ns": 10**9}]}


class Comparison(unittest.TestCase):
    def compare(self, implementation="cublaslt.matmul", values=(1.0, 2.0)):
        kernel = vendor.kernels()["scores-12x64"]

        def session(model, threads):
            self.assertEqual(threads, 1)
            own = model.name.endswith("-own.nimble")
            return Session(model, "matmul_1234" if own else implementation,
                           3000 if own else 1500, (1.0, 2.0) if own else values)
        nimble = mock.Mock(Model=lambda path: path, Session=session)
        return vendor.compare(kernel, pathlib.Path("packed"), nimble, models.error)

    def test_times_and_errors_are_told(self):
        rows = self.compare()
        self.assertEqual([row["size"] for row in rows], [19, 53, 104])
        row = rows[0]
        self.assertEqual((row["own_ns"], row["vendor_ns"], row["error"], row["right"],
                          row["routine"]), (3000, 1500, 0, True, "cublaslt.matmul"))
        found = {"packed": 1, "rows": rows}
        self.assertFalse(vendor.is_wrong(found))
        self.assertTrue(vendor.is_whole(found))
        self.assertIn("| scores-12x64 | 19 | cublaslt.matmul | 3.0 | 1.5 | 0.50 | 0.0e+00 |",
                      vendor.lines(found))

    def test_other_results_are_wrong(self):
        for values in ((1.0, 2.1), (1.0, float("nan"))):
            found = {"rows": self.compare(values=values)}
            self.assertTrue(vendor.is_wrong(found), values)
            self.assertIn("WRONG", "\n".join(vendor.lines(found)))

    def test_where_ours_ran_nothing_was_compared(self):
        found = {"rows": self.compare("matmul_1234")}
        self.assertFalse(vendor.is_whole(found))
        self.assertIn("none: ours ran", "\n".join(vendor.lines(found)))

    def test_without_a_size_nothing_was_compared(self):
        for found in ({}, {"packed": 0, "rows": []}):
            self.assertFalse(vendor.is_whole(found), found)


class Runs(unittest.TestCase):
    def run_part(self, in_time, compare):
        told = []
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "vendor.json").write_text('["scores-12x64", "convolution-64-64-3x3-1"]')
            with mock.patch.object(vendor, "compare", compare):
                vendor.run(folder, None, models.error, in_time, told.append)
        return told[-1]

    def test_it_goes_on_after_failures(self):
        def compare(kernel, *_):
            if kernel.name.startswith("scores"):
                raise RuntimeError("no GPU")
            return [{"kernel": kernel.name, "routine": "cudnn.conv2d", "right": True}]
        found = self.run_part(lambda: True, compare)
        self.assertEqual(found["rows"][0], {"kernel": "scores-12x64",
                                            "problem": "RuntimeError: no GPU"})
        self.assertEqual(found["rows"][1]["routine"], "cudnn.conv2d")
        self.assertFalse(vendor.is_whole(found))

    def test_it_ends_in_time(self):
        found = self.run_part(lambda: False, None)
        self.assertEqual(found["left_out"], ["scores-12x64", "convolution-64-64-3x3-1"])
        self.assertFalse(vendor.is_whole(found))


if __name__ == "__main__":
    unittest.main()
