"""What scripts/check-clang has clang read, and how."""

import importlib.machinery
import importlib.util
import pathlib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load():
    loader = importlib.machinery.SourceFileLoader("check_clang", str(ROOT / "scripts/check-clang"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_clang", loader))
    loader.exec_module(module)
    return module


class CheckClang(unittest.TestCase):
    def setUp(self):
        self.script = load()

    def test_tests_and_generated_files_are_left_out(self):
        wanted = self.script.wanted
        self.assertTrue(wanted(f"{ROOT}/vm/base/cpu.cpp", []))
        self.assertTrue(wanted(f"{ROOT}/vm/base/cpu.cpp", [("vm", "base")]))
        self.assertFalse(wanted(f"{ROOT}/vm/base/cpu.cpp", [("db",)]))
        self.assertFalse(wanted(f"{ROOT}/vm/base/test/cpu_test.cpp", []))
        self.assertFalse(wanted(f"{ROOT}/build-clang/gui/moc.cpp", []))
        self.assertFalse(wanted("/usr/src/gtest/gtest.cc", []))

    def test_what_joins_sources_counts_for_their_folder(self):
        joined = f"{ROOT}/build-clang/vm/base/CMakeFiles/nimble_vm_base.dir/Unity/unity_3_cxx.cxx"
        self.assertTrue(self.script.wanted(joined, []))
        self.assertTrue(self.script.wanted(joined, [("vm", "base")]))
        self.assertFalse(self.script.wanted(joined, [("db",)]))
        self.assertFalse(self.script.wanted(joined.replace("build-clang", "build"), []))

    def test_the_command_reads_and_writes_nothing(self):
        command = self.script.command_of({
            "file": "a.cpp",
            "command": "/usr/bin/ccache /usr/bin/clang++ -DX='a b' -O0 -std=c++20 -MD -MT a.o "
                       "-MF a.o.d -o a.o -c a.cpp"})
        self.assertEqual(command, ["/usr/bin/clang++", "-DX=a b", "-O0", "-std=c++20", "a.cpp",
                                   "-fsyntax-only"])


if __name__ == "__main__":
    unittest.main()
