"""What `scripts/gpu-check run` answers where little or nothing has run (experiments/gpu/check.py)."""

import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import numpy as np  # noqa: E402

from experiments.gpu import check, models  # noqa: E402


class ExitCodes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_check(self, *arguments):
        """Returns the exit code and what was said."""
        said = io.StringIO()
        with mock.patch.dict(os.environ), contextlib.redirect_stdout(io.StringIO()), \
                contextlib.redirect_stderr(said):
            try:
                code = check.main([str(self.folder), "--out", str(self.folder / "out"),
                                   *arguments])
            except SystemExit as ended:
                code = ended.code
        return code, said.getvalue()

    def test_unknown_names(self):
        code, said = self.run_check("--parts", "operators,modles")
        self.assertEqual(code, 2)
        self.assertIn("no part modles", said)
        code, said = self.run_check("--parts", "models", "--models", "brt-base")
        self.assertEqual(code, 2)
        self.assertIn("no model brt-base", said)

    def test_nothing_is_there(self):
        for part in ("operators", "tuning", "models", "profile", "candidates", "vendor"):
            code, _ = self.run_check("--parts", part)
            self.assertEqual(code, 1, part)

    def test_no_time(self):
        (self.folder / "lstm.seeded").write_bytes(b"")
        code, said = self.run_check("--parts", "models", "--seconds", "-1")
        self.assertEqual(code, 1)
        self.assertIn("no time left for lstm", said)


class Models(unittest.TestCase):
    def results_of(self, wrong_from, wrong):
        """What is found of a model whose results are wrong from a run on."""
        class Model:
            output, tolerance, trees = "y", 1e-5, False

            def cases(self):
                return {"n = 1": {}}

        class Nimble:
            def __init__(self, path):
                self.runs = 0

            def bind(self, inputs):
                def run():
                    self.runs += 1
                return run, lambda name: np.float32([wrong if self.runs >= wrong_from else 1])

        found = {}
        with mock.patch.object(check, "Nimble", Nimble), \
                mock.patch.object(check, "reference", lambda *_: np.float64([1])):
            check.run_model(Model(), None, -1, False, found)
        return found["cases"]["n = 1"]

    def test_peers_multiply_as_nimble_does(self):
        for model in models.MODELS.values():
            options = dict(zip(model.options[::2], model.options[1::2]))
            self.assertEqual(options.get("--precision", "f32"), model.precision, model.name)
        self.assertLessEqual({"f32", "tf32", "bf16"},
                             {m.precision for m in models.MODELS.values() if "bert" in m.name})
        for precision in ("tf32", "f32", "tf32", "bf16"):
            torch = mock.MagicMock()
            with mock.patch.dict(sys.modules, torch=torch):
                check.Torch(mock.Mock(precision=precision), compiled=False)
            for backend in (torch.backends.cuda.matmul, torch.backends.cudnn):
                self.assertIs(backend.allow_tf32, precision == "tf32", precision)

    def test_later_runs_are_compared(self):
        self.assertTrue(self.results_of(1 << 20, 2)["right"])
        for wrong_from in (1, 3):
            for wrong in (2, np.nan):
                case = self.results_of(wrong_from, wrong)
                self.assertFalse(case["right"], (wrong_from, wrong))
                self.assertFalse(case["error"] <= 1e-5)


if __name__ == "__main__":
    unittest.main()
