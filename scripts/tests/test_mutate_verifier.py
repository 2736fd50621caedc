"""Tests of scripts/mutate-verifier: python -m unittest scripts.tests.test_mutate_verifier"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[1]
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS / "mutants"))
import schemata  # noqa: E402


def rewritten(text, everything=True):
    rewriter = schemata.Rewriter("vm/executable/verifier.cpp", text, everything)
    mutants = rewriter.run()
    for number, mutant in enumerate(mutants, 1):
        mutant.number = number
    return mutants, rewriter.result()


def changes(text, everything=True):
    return sorted(m.change for m in rewritten(text, everything)[0])


class RewriterTest(unittest.TestCase):
    def test_operands_and_bounds(self):
        self.assertEqual(changes("int f() { if (a && (b || c < 3)) return 1; }"),
                         ["one less in c < 3", "one more in c < 3", "without (b || c < 3)",
                          "without a", "without b", "without c < 3"])
        self.assertEqual(changes("int f() { if (a == b) return 1; }"), ["always false"])
        self.assertEqual(changes("bool f() { return a == b; }"), [])
        self.assertEqual(changes("bool f() { return x <= y; }"),
                         ["one less in x <= y", "one more in x <= y"])

    def test_brackets_comments_and_literals_are_no_operators(self):
        self.assertEqual(changes('int f() { if (g<int>(a, "x && y") /* b || c */) return 1; }'),
                         ["always false"])
        self.assertEqual(changes("int f() { if (p->q > r->s) return 1; }"),
                         ["always false", "one less in p->q > r->s", "one more in p->q > r->s"])

    def test_only_checks(self):
        self.assertEqual(changes("void f() { if (a) g(); }", everything=False), [])
        for body in ("throw E();", "{ throw E(); }", "fail(x);", "[[unlikely]] g();",
                     "return false;"):
            self.assertEqual(changes(f"void f() {{ if (a) {body} }}", everything=False),
                             ["always false"], body)

    def test_declarations_in_conditions(self):
        mutants, text = rewritten("void f() { if (const auto bad = g()) throw E(bad); }")
        self.assertEqual([m.change for m in mutants], ["always false"])
        self.assertIn("if (const auto bad = g(); ::nimble::mutants::operand(1, false, bad))", text)

    def test_nested_lambdas(self):
        found = changes("bool f() { if (x && any(v, [](int i) { return i < 0; })) return true; }")
        self.assertIn("one more in i < 0", found)
        self.assertIn("without x", found)

    def test_what_it_makes_compiles_and_is_each_mutant(self):
        source = ("bool in(int v, int n) { return v >= 0 && v < n; }\n"
                  "int main(int, char** a) { return in(std::atoi(a[1]), 3) ? 0 : 1; }\n")
        mutants, text = rewritten(source)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "vm/base").mkdir(parents=True)
            (path / "vm/base/mutants.h").write_text((SCRIPTS / "mutants/mutants.h").read_text())
            (path / "a.cpp").write_text(text)
            subprocess.run(["c++", "-std=c++20", "-w", "-I", folder, "-o", path / "a",
                            path / "a.cpp"], check=True)

            def holds(value, mutant=0):
                return subprocess.run([path / "a", str(value)],
                                      env={"NIMBLE_MUTANT": str(mutant)}).returncode == 0

            def number(change):
                return next(m.number for m in mutants if m.change == change)
            self.assertEqual([holds(v) for v in (-1, 0, 2, 3)], [False, True, True, False])
            self.assertTrue(holds(3, number("without v < n")))
            self.assertTrue(holds(3, number("one more in v < n")))
            self.assertFalse(holds(2, number("one less in v < n")))
            self.assertTrue(holds(-1, number("one more in v >= 0")))
            self.assertFalse(holds(0, number("one less in v >= 0")))


class EquivalentTest(unittest.TestCase):
    # A key that names nothing hides nothing, but misleads.
    def test_every_key_is_a_mutant(self):
        out = subprocess.run([SCRIPTS / "mutate-verifier", "--list"], capture_output=True,
                             text=True, check=True).stdout
        known = set()
        for line in out.splitlines():
            _, place, condition, change = line.split("\t")
            known.add(f"{place.rsplit(':', 1)[0]} | {condition} | {change}")
        for line in (SCRIPTS / "mutants/equivalent.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                self.assertIn(line, known)


if __name__ == "__main__":
    unittest.main()
