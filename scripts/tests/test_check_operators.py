"""Tests of scripts/check-operators: python -m unittest scripts.tests.test_check_operators"""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "check-operators"
TABLE = """
NIMBLE_OP(add, 2, 2, Elementwise, DataIndependent, broadcast, "", "Sum.")
NIMBLE_OP(softmax, 1, 1, Reduction, DataIndependent, unary_axis, "axis:int!", "…",
          .sums = sums_along_axes)
NIMBLE_OP(packed_matmul, 2, 2, Anchor, DataIndependent, packed_matmul, "", "…")
NIMBLE_OP(memory.kill, 1, 1, Outside, DataIndependent, lowered, "", "…")
"""
PASS = "compiler/passes/new_pass.cpp"


def load():
    loader = importlib.machinery.SourceFileLoader("check_operators", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


CHECK = load()


def compared(text):
    names = CHECK.ROW.findall(TABLE)
    return CHECK.compared(text, names, CHECK.patterns(names))


class ComparisonTest(unittest.TestCase):
    def assert_found(self, text, *names):
        self.assertEqual([name for _, name in compared(text)], list(names), text)

    def test_names_are_the_rows_of_the_table(self):
        self.assertEqual(CHECK.ROW.findall(TABLE), ["add", "softmax", "packed_matmul",
                                                    "memory.kill"])

    def test_comparisons_are_found(self):
        self.assert_found('if (e.op == "add") return;', "add")
        self.assert_found('if (e.op != "add" && w.anchor == "softmax") return;', "add", "softmax")
        self.assert_found('return "add" == op;', "add")
        self.assert_found('const Expr* x = definition(d, a, "add");', "add")
        self.assert_found('const Expr* x = op(strip(a, &f), "softmax");', "softmax")

    def test_sets_and_tables_are_found(self):
        self.assert_found('static const std::set<std::string> kOps = {"softmax", "add"};',
                          "add", "softmax")
        self.assert_found('kOps = {"unknown",\n        "softmax"};', "softmax")
        self.assert_found('kNeutral = {{"add", {0, true}}, {"softmax", {1, true}}};',
                          "add", "softmax")

    def test_parts_of_names_are_found(self):
        self.assert_found('b.value->op.find("matmul") != npos', "matmul")
        self.assert_found('w.anchor.starts_with("soft")', "soft")
        self.assert_found('e.op.rfind("memory.", 0) == 0')  # the dialect, no operator
        self.assert_found('name.find("matmul")')

    def test_calls_comments_and_other_words_are_none(self):
        self.assert_found('b.call("add", {x, y}, {{"axis", 1}}, "sum");')
        self.assert_found('ir::make_call("softmax", {x});  // as e.op == "add" would be')
        self.assert_found('if (e.op == "no_operator") return;')

    def test_lines_are_told(self):
        self.assertEqual(compared('first\nif (e.op == "add")\nthird'), [(2, "add")])


class PlaceTest(unittest.TestCase):
    def test_homes_may_compare_anything(self):
        for path in ["compiler/reference/reduce.cpp", "compiler/ir/ops/shape.cpp",
                     "compiler/kernels/templates/dense.cpp", "compiler/frontend/onnx/nodes.cpp"]:
            self.assertTrue(CHECK.is_allowed(path, "add"), path)
        for path in [PASS, "tuner/service/workloads.cpp", "compiler/kernels/workload.cpp"]:
            self.assertFalse(CHECK.is_allowed(path, "add"), path)

    def test_exceptions_allow_their_names_only(self):
        path = "compiler/passes/recognise_cells.cpp"
        self.assertTrue(CHECK.is_allowed(path, "tanh"))
        self.assertFalse(CHECK.is_allowed(path, "cosh"))

    def test_lowered_instructions_belong_to_the_lowered_passes(self):
        self.assertTrue(CHECK.is_allowed("compiler/passes/plan_memory.cpp", "memory.kill"))
        self.assertFalse(CHECK.is_allowed("compiler/passes/eliminate_dead.cpp", "memory.kill"))

    def test_exceptions_have_reasons_and_exist(self):
        root = SCRIPT.parents[1]
        for path, (names, reason) in CHECK.EXCEPTIONS.items():
            self.assertTrue((root / path).is_file(), path)
            self.assertTrue(names and reason, path)


class ProgramTest(unittest.TestCase):
    def run_on(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in {CHECK.TABLE: TABLE, **files}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            return subprocess.run([sys.executable, "-B", SCRIPT, root], capture_output=True,
                                  text=True, check=False)

    def test_an_offence_is_told_with_its_place(self):
        run = self.run_on({PASS: '\nbool f() { return e.op == "softmax"; }\n'})
        self.assertEqual(run.returncode, 1)
        self.assertIn(f'{PASS}:2: compares the operator\'s name "softmax"', run.stdout)

    def test_tests_may_name_what_they_test(self):
        run = self.run_on({"compiler/passes/test/a_test.cpp": 'e.op == "softmax"'})
        self.assertNotIn("a_test.cpp", run.stdout)

    def test_an_exception_that_nothing_needs_is_an_offence(self):
        run = self.run_on({"compiler/passes/recognise_cells.cpp": 'e.op == "add"'})
        self.assertNotIn('"add"', run.stdout.split("recognise_cells.cpp", 1)[1].split("\n")[0])
        self.assertIn('recognise_cells.cpp:1: compares "tanh" no more', run.stdout)

    def test_a_folder_without_the_table_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run([sys.executable, "-B", SCRIPT, folder], capture_output=True,
                                 text=True, check=False)
            self.assertIn("give the repository's root", run.stderr)


if __name__ == "__main__":
    unittest.main()
