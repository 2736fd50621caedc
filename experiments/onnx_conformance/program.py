"""`experiments/run onnx-conformance`: the onnx package's backend tests, compiled and run in bulk.

Each case ends in one of four ways. passed: every output within the package's own tolerances.
unsupported: the compiler refused it and said so (status `unsupported`). failed: another error, or
a wrong result. crashed: the compiler or the run died, or took longer than a minute.

The tests feed everything as an input. Where the compiler refuses a model because it must know an
input (axes, scales), that input becomes a constant of the model; where a model leaves the rank of
a sequence's elements open, the rank is stated. `fixed` counts the cases that passed so. Numbers that
a case draws at random are not compared with those that the package drew: their shapes, types and
range are, and `drawn` counts such cases.
"""

import argparse
import collections
import os
import re
import sys
import tempfile
import time

from experiments.harness import batch
from experiments.harness.errors import FAILURE, WRONG_RESULT, ExperimentError, exit_code
from experiments.harness.experiment import ROOT

FORMAT = 1
SUITES = ("node", "expanded", "special", "simple", "pytorch-operator", "pytorch-converted")
STATES = ("passed", "unsupported", "failed", "crashed")
SECONDS = 120  # of one case, after which its worker is ended


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="experiments/run onnx-conformance",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compiles and runs the onnx package's own backend tests, at its tolerances.",
        epilog="The table goes to standard output, results to\n"
               "experiments/results/onnx-conformance.json; a run with --filter or --suite prints\n"
               "each case that did not pass and writes nothing.\n\n"
               "exit codes: 0 nothing failed or crashed, 3 something did, 1 failure, 2 usage,\n"
               "130 interrupted")
    parser.add_argument("--filter", metavar="REGEX", help="only cases whose name matches")
    parser.add_argument("--suite", choices=SUITES, help="only this suite")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="workers (default: one per core, %(default)s)")
    return parser.parse_args(arguments)


def run_cases(cases, jobs, folder):
    """Returns the outcome of each case: (status, operator, error, fixed inputs, seconds)."""
    from experiments.onnx_conformance import worker

    def report(outcomes):
        if len(outcomes) % 100 == 0:
            print(f"onnx-conformance: {len(outcomes)} of {len(cases)}", file=sys.stderr, flush=True)

    return batch.run_all(
        len(cases), worker.main, lambda i: (cases, f"{folder}/{i}"), jobs, SECONDS,
        lambda number, message, seconds: ("crashed", cases[number].operator, message, [], seconds),
        report)


def summarize(cases, outcomes):
    """Returns the suites' figures and the lists of what did not pass."""
    suites = {}
    refused = collections.defaultdict(collections.Counter)
    bad = {"failed": [], "crashed": []}
    for number, case in enumerate(cases):
        status, operator, error, fixed, _ = outcomes[number]
        suite = suites.setdefault(case.suite, {"total": 0, **dict.fromkeys(STATES, 0), "fixed": 0,
                                              "drawn": 0})
        suite["total"] += 1
        suite[status] += 1
        suite["fixed"] += status == "passed" and bool(fixed)
        suite["drawn"] += status == "passed" and case.drawn
        if status == "unsupported":
            refused[operator][error] += 1
        elif status != "passed":
            bad[status].append({"suite": case.suite, "case": case.name, "operator": operator,
                                "error": error})
    unsupported = [{"operator": name, "cases": sum(errors.values()),
                    "errors": [{"cases": n, "error": text} for text, n in errors.most_common()]}
                   for name, errors in sorted(refused.items(),
                                              key=lambda item: (-sum(item[1].values()), item[0]))]
    return {"suites": {name: suites[name] for name in SUITES if name in suites},
            "unsupported": unsupported, **bad}


def table(summary):
    rows = [("suite", "cases", *STATES, "share", "of these fixed", "drawn")]
    for name, suite in summary["suites"].items():
        rows.append((name, str(suite["total"]), *(str(suite[s]) for s in STATES),
                     f"{suite['passed'] / suite['total']:.1%}", str(suite["fixed"]),
                     str(suite["drawn"])))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(row[0].ljust(widths[0]) + "".join(
        "  " + cell.rjust(width) for cell, width in zip(row[1:], widths[1:])) for row in rows)


def execute(options, arguments):
    from experiments.harness import machine, report
    from experiments.onnx_conformance import cases as tests
    if not (ROOT / "build" / "bin" / "nimble-compile").exists():
        raise ExperimentError("build/bin/nimble-compile is not there; run scripts/build first")
    start = time.monotonic()
    cases = [case for case in tests.collect()
             if (not options.filter or re.search(options.filter, case.name))
             and (not options.suite or case.suite == options.suite)]
    if not cases:
        raise ExperimentError("no case has such a name", FAILURE)
    with tempfile.TemporaryDirectory(prefix="onnx-conformance-") as folder:
        outcomes = run_cases(cases, options.jobs, folder)
    summary = summarize(cases, outcomes)
    if options.filter or options.suite:
        for number, case in enumerate(cases):
            status, operator, error, _, _ = outcomes[number]
            if status != "passed":
                print(f"{status:11}  {case.suite}/{case.name} ({operator}): {error}")
    else:
        import onnx
        stem = report.RESULTS / "onnx-conformance.json"
        report.write_json(stem, {
            "format": FORMAT, "experiment": "onnx-conformance", "onnx": onnx.__version__,
            **machine.provenance(arguments), "seconds": round(time.monotonic() - start, 1),
            **summary})
        print(f"wrote {stem}", file=sys.stderr)
        for row in summary["unsupported"]:
            print(f"{row['cases']:4} unsupported  {row['operator']}: {row['errors'][0]['error']}")
        for status in ("failed", "crashed"):
            for row in summary[status]:
                print(f"     {status:11}  {row['case']} ({row['operator']}): {row['error']}")
    print(table(summary))
    return WRONG_RESULT if summary["failed"] or summary["crashed"] else 0


def main(arguments):
    return exit_code(lambda: execute(parse_arguments(arguments), ["onnx-conformance", *arguments]))
