"""Tests of scripts/check-layers: python -m unittest scripts.tests.test_check_layers"""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "check-layers"


def load():
    loader = importlib.machinery.SourceFileLoader("check_layers", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


LAYERS = load()


def offences(path, text):
    return list(LAYERS.check_file(path, text))


class IncludeTest(unittest.TestCase):
    def assert_allowed(self, path, header):
        self.assertEqual(offences(path, f"{header}\n"), [])

    def assert_refused(self, path, header, *words):
        found = offences(path, f"// first line\n{header}\n")
        self.assertEqual([line for line, _ in found], [2], found)
        for word in words:
            self.assertIn(word, found[0][1])

    def test_rows_name_only_rows_above(self):
        seen = []
        for folder, allowed in LAYERS.LAYERS.items():
            for name in allowed:
                self.assertTrue(any(LAYERS.covers(name, row) for row in seen), (folder, name))
            seen.append(folder)

    def test_own_folder_and_row_are_allowed(self):
        self.assert_allowed("vm/executable/reader.cpp", '#include "vm/executable/reader.h"')
        self.assert_allowed("vm/executable/reader.cpp", '#include "vm/base/bytes.h"')
        self.assert_allowed("compiler/tuned/database_source.cpp", '#include "db/store/store.h"')
        self.assert_allowed("vm/base/error.cpp", "#include <fmt/format.h>")

    def test_runtime_never_sees_the_compiler(self):
        self.assert_refused("vm/interpreter/machine.cpp", '#include "compiler/ir/dim.h"',
                            "vm/interpreter may include only", "vm/runtime")
        self.assert_refused("vm/interpreter/test/run_test.cpp", '#include "compiler/ir/dim.h"')
        self.assert_refused("tuner/measure/runner.cpp", '#include "compiler/ir/dim.h"')

    def test_database_sees_only_the_base(self):
        self.assert_refused("db/store/records.cpp", '#include "compiler/kernels/target.h"')
        self.assert_refused("db/store/records.cpp", '#include "vm/executable/reader.h"')

    def test_no_step_backwards_within_a_house(self):
        self.assert_refused("compiler/ir/infer.cpp", '#include "compiler/passes/pass.h"')
        self.assert_refused("vm/base/file.cpp", '#include "vm/runtime/object.h"')
        self.assert_refused("gui/view/chart.cpp", '#include "tuner/service/campaign.h"')
        self.assert_refused("compiler/emit/function_emitter.cpp",
                            '#include "compiler/driver/compile.h"')
        self.assert_refused("compiler/tuned/tuned.h", '#include "compiler/driver/compile.h"')

    def test_only_the_border_sees_the_database(self):
        for file in ("passes/fuse.cpp", "emit/function_emitter.cpp", "driver/compile.cpp"):
            self.assert_refused(f"compiler/{file}", '#include "db/store/store.h"')

    def test_the_tuner_names_what_it_needs_of_the_compiler(self):
        self.assert_allowed("tuner/service/backend.cpp", '#include "compiler/driver/compile.h"')
        self.assert_refused("tuner/space/space.cpp", '#include "compiler/driver/compile.h"')
        self.assert_refused("tuner/service/backend.cpp", '#include "compiler/emit/entry_types.h"')

    def test_a_prefix_is_not_a_folder(self):
        self.assertFalse(LAYERS.covers("vm/base", "vm/basement"))
        self.assertTrue(LAYERS.covers("vm/", "vm/basement"))

    def test_borders_of_outside_libraries(self):
        self.assert_allowed("compiler/codegen/llvm/build.cpp", "#include <llvm/IR/Module.h>")
        self.assert_refused("compiler/driver/compile.cpp", "#include <llvm/IR/Module.h>",
                            "compiler/codegen")
        self.assert_refused("tuner/search/model.cpp", '#include "llvm/IR/Module.h"')
        self.assert_refused("tuner/service/queue.cpp", "#  include <sqlite3.h>", "db/store")
        self.assert_refused("tuner/service/queue.cpp", "#include <libpq-fe.h>", "db/store")

    def test_tests_look_from_outside(self):
        self.assert_allowed("compiler/driver/test/chain_test.cpp", '#include "vm/interpreter/model.h"')
        self.assert_refused("compiler/driver/test/chain_test.cpp", '#include "tuner/space/space.h"')

    def test_unknown_folders_are_named(self):
        found = offences("vm/attic/box.cpp", "int x;\n")
        self.assertEqual(len(found), 1)
        self.assertIn("vm/attic has no row", found[0][1])

    def test_comments_are_no_includes(self):
        self.assert_allowed("vm/base/a.cpp", '// #include "compiler/ir/dim.h"')


class LengthTest(unittest.TestCase):
    def test_limit(self):
        self.assertEqual(offences("vm/base/a.cpp", "\n" * 800), [])
        self.assertIn("801 lines", offences("vm/base/a.cpp", "\n" * 801)[0][1])


class ProgramTest(unittest.TestCase):
    def run_on(self, files):
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                path = pathlib.Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return subprocess.run([sys.executable, str(SCRIPT), root], capture_output=True,
                                  text=True)

    def test_names_file_and_line(self):
        result = self.run_on({"vm/base/a.cpp": '\n#include "db/store/store.h"\n'})
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stdout.startswith("vm/base/a.cpp:2: "), result.stdout)

    def test_clean_tree(self):
        self.assertEqual(self.run_on({"vm/base/a.cpp": "int x;\n"}).returncode, 0)

    def test_an_empty_tree_is_no_success(self):
        self.assertEqual(self.run_on({"README.md": "hello\n"}).returncode, 1)


if __name__ == "__main__":
    unittest.main()
