"""Tests of the conformance run's bookkeeping, without onnx or a compiler."""

import types
import unittest

from experiments.onnx_conformance import program


def case(name, suite="node", operator="Add", drawn=False):
    return types.SimpleNamespace(name=name, suite=suite, operator=operator, drawn=drawn)


class Summary(unittest.TestCase):
    CASES = [case("a"), case("b", drawn=True), case("c"), case("d", "expanded", drawn=True),
             case("e", "expanded")]
    OUTCOMES = {0: ("passed", "Add", "", ["axes"], 0.1), 1: ("unsupported", "Fancy", "no rule", [], 0.1),
                2: ("crashed", "Add", "ended with -6", [], 0.1), 3: ("passed", "Add", "", [], 0.1),
                4: ("unsupported", "Fancy", "no rule", [], 0.1)}

    def test_every_case_counts_once(self):
        suites = program.summarize(self.CASES, self.OUTCOMES)["suites"]
        self.assertEqual(list(suites), ["node", "expanded"])
        for suite in suites.values():
            self.assertEqual(suite["total"], sum(suite[state] for state in program.STATES))
        self.assertEqual(suites["node"]["fixed"], 1)
        self.assertEqual(suites["expanded"]["fixed"], 0)
        self.assertEqual(suites["node"]["drawn"], 0)
        self.assertEqual(suites["expanded"]["drawn"], 1)

    def test_what_did_not_pass_is_listed(self):
        summary = program.summarize(self.CASES, self.OUTCOMES)
        self.assertEqual(summary["failed"], [])
        self.assertEqual([row["case"] for row in summary["crashed"]], ["c"])
        self.assertEqual(summary["unsupported"], [
            {"operator": "Fancy", "cases": 2, "errors": [{"cases": 2, "error": "no rule"}]}])

    def test_the_table_has_a_line_per_suite(self):
        lines = program.table(program.summarize(self.CASES, self.OUTCOMES)).splitlines()
        self.assertEqual(len(lines), 3)
        self.assertIn("33.3%", lines[1])
        self.assertEqual(len({len(line) for line in lines}), 1)


if __name__ == "__main__":
    unittest.main()
