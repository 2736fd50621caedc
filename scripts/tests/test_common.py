"""Tests of what scripts share: python -m unittest scripts.tests.test_common"""

import pathlib
import subprocess
import unittest

COMMON = pathlib.Path(__file__).resolve().parents[1] / "common.sh"


def run_tests(prints, ends_with=0):
    """Has scripts run a program of tests that prints this. Returns (exit code, what they print)."""
    program = f"printf '%s\\n' {' '.join(map(repr, prints))}; exit {ends_with}"
    done = subprocess.run(
        ["bash", "-c", f'source {COMMON}; run_tests some bash -c "$1"; end_of_tests', "some-script",
         program], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class RunTests(unittest.TestCase):
    def test_what_passes_has_a_line(self):
        code, text = run_tests(["[==========] 10 tests from 1 test suites ran. (5 ms total)",
                                "[  PASSED  ] 10 tests."])
        self.assertEqual(code, 0)
        self.assertRegex(text, r"^some +ok +\d+ s  \[  PASSED  \] 10 tests\. *$")

    def test_what_fails_is_shown_and_named(self):
        code, text = run_tests(["Expected: 1"], ends_with=1)
        self.assertEqual(code, 1)
        self.assertIn("Expected: 1", text)
        self.assertIn("these failed: some", text)

    def test_a_filter_that_leaves_no_test_fails(self):
        # As GoogleTest says it with --gtest_brief=1, which leaves "Running 0 tests" out.
        code, text = run_tests(["Running main() from gtest_main.cc",
                                "[==========] 0 tests from 0 test suites ran. (0 ms total)",
                                "[  PASSED  ] 0 tests."])
        self.assertEqual(code, 1)
        self.assertIn("these failed: some", text)


if __name__ == "__main__":
    unittest.main()
