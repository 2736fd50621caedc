"""Tests of scripts/sanitize, with a program in place of tests: python -m unittest
scripts.tests.test_sanitize
"""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[1]

# In place of a component's tests: counts its runs, and ends as the case says.
PROGRAM = """#!/bin/bash
echo run >>"$(dirname "$0")/runs.$GTEST_SHARD_INDEX"
runs=$(wc -l <"$(dirname "$0")/runs.$GTEST_SHARD_INDEX")
{body}
"""
CRASH = "echo 'Tracer caught signal 11: addr=0x488'; exit 23"


class SanitizeTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.scratch.name)
        (self.root / "scripts").mkdir()
        for name in ("sanitize", "common.sh"):
            shutil.copy(SCRIPTS / name, self.root / "scripts" / name)
        build = self.root / "scripts" / "build"
        build.write_text("#!/bin/sh\n", encoding="utf-8")
        build.chmod(0o755)
        self.bin = self.root / "build-asan-ubsan" / "bin"
        self.bin.mkdir(parents=True)

    def tearDown(self):
        self.scratch.cleanup()

    def run_with(self, body):
        """Runs it with one shard. Returns (exit code, what it printed, how often the tests ran)."""
        program = self.bin / "nimble-it-test"
        program.write_text(PROGRAM.format(body=body), encoding="utf-8")
        program.chmod(0o755)
        done = subprocess.run([self.root / "scripts" / "sanitize", "address", "it"],
                              capture_output=True, text=True, check=False,
                              env={"PATH": "/usr/bin:/bin", "GTEST_TOTAL_SHARDS": "1"})
        runs = (self.bin / "runs.0").read_text(encoding="utf-8").split()
        return done.returncode, done.stdout + done.stderr, len(runs)

    def test_passes_what_passes(self):
        self.assertEqual(self.run_with("exit 0")[::2], (0, 1))

    def test_never_repeats_a_finding(self):
        code, text, runs = self.run_with("echo 'ERROR: LeakSanitizer: memory leaks'; exit 1")
        self.assertEqual((code, runs), (1, 1))
        self.assertIn("memory leaks", text)

    def test_repeats_a_crash_of_the_leak_checker(self):
        code, text, runs = self.run_with(f"[[ $runs -gt 1 ]] || {{ {CRASH}; }}")
        self.assertEqual((code, runs), (0, 2))
        self.assertIn("once more", text)

    def test_a_finding_after_a_crash_counts(self):
        code, text, runs = self.run_with(
            f"[[ $runs -gt 1 ]] || {{ {CRASH}; }}; echo found; exit 1")
        self.assertEqual((code, runs), (1, 2))
        self.assertIn("found", text)

    def test_gives_up_where_it_always_crashes(self):
        self.assertEqual(self.run_with(CRASH)[::2], (1, 3))


if __name__ == "__main__":
    unittest.main()
