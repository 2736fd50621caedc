"""Tests of the options that experiments share, with the standard library alone."""

import argparse
import contextlib
import io
import pathlib
import unittest

from experiments.harness import everything, flags


def parser_of(*adders):
    parser = argparse.ArgumentParser(prog="p")
    for add in adders:
        add(parser)
    return parser


def tuning(parser):
    flags.add_tuning(parser, "network", "15m where it has none")


class Flags(unittest.TestCase):
    def refused(self, parser, *words):
        error = io.StringIO()
        with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(error):
            flags.parse(parser, words)
        self.assertEqual(ended.exception.code, 2)
        return error.getvalue()

    def test_budgets(self):
        self.assertEqual([flags.in_seconds(flags.budget(text)) for text in ("90s", "5m", "2h")],
                         [90, 300, 7200])
        for wrong in ("5", "0m", "-5m", "1d", "5 m", "", "1.5h"):
            with self.assertRaises(argparse.ArgumentTypeError):
                flags.budget(wrong)

    def test_tuning(self):
        parser = parser_of(tuning)
        found = flags.parse(parser, [])
        self.assertEqual((found.database, found.tune, found.untuned), (flags.DATABASE, None, False))
        found = flags.parse(parser, ["--tune", "5m", "--database", "x.db"])
        self.assertEqual((found.database, found.tune), (pathlib.Path("x.db"), "5m"))
        self.assertIn("exclude each other", self.refused(parser, "--tune", "5m", "--untuned"))
        self.assertIn("like 90s", self.refused(parser, "--tune", "soon"))
        text = " ".join(parser.format_help().split())
        self.assertIn("first tune each network", text)
        self.assertIn("(default: 15m where it has none)", text)

    def test_a_program_without_a_database_by_default_says_why(self):
        parser = parser_of(lambda p: flags.add_database(p, None, "none, for so it is"))
        self.assertIsNone(flags.parse(parser, []).database)
        self.assertIn("none, for so it is", " ".join(parser.format_help().split()))

    def test_all_finds_them_in_the_help(self):
        parser = parser_of(tuning, lambda p: flags.add_within(p, "all of it"))
        options = argparse.Namespace(quick=False, untuned=False, tune="9m", within="4m",
                                     tvm_tuning=None)
        self.assertEqual(everything.flags(options, parser.format_help()),
                         ["--tune", "9m", "--within", "4m"])


if __name__ == "__main__":
    unittest.main()
