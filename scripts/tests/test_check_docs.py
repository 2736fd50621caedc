"""Tests of scripts/check-docs: python -m unittest scripts.tests.test_check_docs"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "check-docs"


def check(page, files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {"docs/page.md": page, **files}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)
        return done.returncode, done.stdout


class CheckDocsTest(unittest.TestCase):
    CODE = "int f() {\n  return 1;\n}\n"

    def test_a_block_that_stands_in_its_file(self):
        for part in (self.CODE, "  return 1;\n"):
            self.assertEqual(check(f"# A\n\n```c++ src/f.cpp\n{part}```\n", {"src/f.cpp": self.CODE}),
                             (0, ""))

    def test_a_block_that_has_changed(self):
        code, out = check("# A\n\n```c++ src/f.cpp\n  return 2;\n```\n", {"src/f.cpp": self.CODE})
        self.assertEqual(code, 1)
        self.assertIn("docs/page.md:3: src/f.cpp does not contain", out)

    def test_half_a_line_is_no_line(self):
        self.assertEqual(check("```c++ f.cpp\nreturn 1;\n```\n", {"f.cpp": self.CODE})[0], 1)

    def test_a_file_that_is_gone(self):
        code, out = check("```c++ gone.cpp\nx\n```\n", {})
        self.assertEqual(code, 1)
        self.assertIn("there is no file gone.cpp", out)

    def test_blocks_without_a_file_are_free(self):
        self.assertEqual(check("```c++\nanything\n```\n", {}), (0, ""))

    def test_a_folder_without_pages(self):
        done = subprocess.run([sys.executable, SCRIPT, tempfile.gettempdir() + "/none"],
                              capture_output=True, text=True)
        self.assertIn("no pages here", done.stderr)
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main()
