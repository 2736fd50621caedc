"""Tests of scripts/sanitize, with a program in place of tests: python -m unittest
scripts.tests.test_sanitize
"""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[1]

LIBRARY = """
static __thread long room[3];
long* touch(void) { room[0] = 1; return room; }
"""

# Opens the library whose thread-local memory then stands 16 bytes into a page, once all the
# allocator's places before such a one are taken. LEAK: whether a block of its own is lost, too.
PROGRAM = """
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
static char* kept[100000];
static void lose(void) { char* volatile lost = malloc(4000); lost[0] = 1; lost = 0; }
int main(void) {
  void* library = dlopen("LIBRARY", RTLD_NOW);
  if (!library) return 2;
  for (int i = 0; i < 100000; ++i) {
    kept[i] = malloc(24);
    if (((uintptr_t)kept[i] & 4095) != 16) continue;
    free(kept[i]);
    break;
  }
  long* room = ((long* (*)(void))dlsym(library, "touch"))();
  room[1] = (long)malloc(4000);
  if (LEAK) lose();
  return ((uintptr_t)room & 4095) == 16 ? 0 : 3;
}
"""


@unittest.skipUnless(shutil.which("gcc"), "gcc is not installed")
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
        self.program = self.bin / "nimble-it-test"

    def tearDown(self):
        self.scratch.cleanup()

    def compile(self, text, output, *flags):
        source = self.root / "source.c"
        source.write_text(text, encoding="utf-8")
        subprocess.run(["gcc", *flags, str(source), "-o", str(output)], check=True)

    def run_it(self, options=""):
        """Runs it with one shard. Returns (exit code, what it printed)."""
        done = subprocess.run([self.root / "scripts" / "sanitize", "address", "it"],
                              capture_output=True, text=True, check=False,
                              env={"PATH": "/usr/bin:/bin", "GTEST_TOTAL_SHARDS": "1",
                                   "ASAN_OPTIONS": "quarantine_size_mb=0 "
                                   "thread_local_quarantine_size_kb=0 " + options})
        return done.returncode, done.stdout + done.stderr

    def compile_with_late_library(self, leak):
        library = self.root / "late.so"
        self.compile(LIBRARY, library, "-shared", "-fPIC")
        program = PROGRAM.replace("LIBRARY", str(library)).replace("LEAK", str(leak))
        self.compile(program, self.program, "-fsanitize=address", "-ldl")

    def run_with(self, body):
        self.program.write_text("#!/bin/bash\n" + body, encoding="utf-8")
        self.program.chmod(0o755)
        return self.run_it()

    def test_passes_what_passes(self):
        self.assertEqual(self.run_with("exit 0")[0], 0)

    def test_a_finding_counts(self):
        code, text = self.run_with("echo 'ERROR: LeakSanitizer: memory leaks'; exit 1")
        self.assertEqual(code, 1)
        self.assertIn("memory leaks", text)

    def test_thread_local_memory_of_a_late_library_does_not_stop_the_leak_checker(self):
        self.compile_with_late_library(leak=0)
        self.assertEqual(self.run_it()[0], 0)

    def test_a_leak_beside_such_a_library_is_found(self):
        self.compile_with_late_library(leak=1)
        code, text = self.run_it()
        self.assertEqual(code, 1)
        self.assertIn("4000 byte(s) leaked in 1 allocation(s)", text)


if __name__ == "__main__":
    unittest.main()
