"""`experiments/run exporters`: PyTorch models, exported on the spot, compiled, run at any shape.

Each model of models/ goes through both exporters of torch.onnx with all its axes dynamic, is
compiled once, and runs at five drawn shapes against the module itself. It ends in one of these:

    equal             all five shapes within the tolerance
    not exported      PyTorch refused, and says why
    exported wrongly  ONNX Runtime gives of this file what nimble gives, not what the module does,
                      or nothing where nimble gives nothing
    not compiled      nimble refused, and says why
    failed, crashed   nimble's fault
"""

import argparse
import collections
import os
import re
import sys
import tempfile
import time

from experiments.exporters import compare
from experiments.harness import batch
from experiments.harness.errors import FAILURE, WRONG_RESULT, ExperimentError, exit_code
from experiments.harness.experiment import ROOT

FORMAT = 1
STATES = ("equal", "not exported", "exported wrongly", "not compiled", "failed", "crashed")
OURS = ("not compiled", "failed", "crashed")
SHAPES = 5
SECONDS = 1800  # of one model and exporter, after which its worker is ended


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="experiments/run exporters", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Exports PyTorch models with both exporters, compiles them, and compares them\n"
                    "with PyTorch at drawn shapes.",
        epilog="The table goes to standard output, results to\n"
               "experiments/results/exporters.json and .md; a run with --filter, --exporter\n"
               "or --shapes writes nothing.\n\n"
               "exit codes: 0 every export compiles and is equal, 3 not, 1 failure, 2 usage,\n"
               "130 interrupted")
    parser.add_argument("--filter", metavar="REGEX", help="only models whose name matches")
    parser.add_argument("--exporter", choices=("torchscript", "torch.export"), help="only this one")
    parser.add_argument("--shapes", type=int, default=SHAPES, metavar="N",
                        help="drawn shapes of each (default %(default)s)")
    parser.add_argument("--keep", metavar="FOLDER", help="leave the models and executables there")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="workers (default: one per core, %(default)s)")
    return parser.parse_args(arguments)


def run_tasks(tasks, shapes, jobs, folder):
    from experiments.exporters import worker

    def crashed(number, message, seconds):
        entry, exporter = tasks[number]
        return [{"model": entry.name, "group": entry.group, "exporter": exporter,
                 "status": "crashed", "equal": 0, "largest_error": 0.0, "message": message,
                 "seconds": round(seconds, 1)}]

    shown = set()

    def report(outcomes):
        for number in outcomes.keys() - shown:
            shown.add(number)
            record = outcomes[number][0]
            print(f"[{len(shown)}/{len(tasks)}] {record['model']}, {record['exporter']}: "
                  f"{record['status']} {record['message']}", file=sys.stderr, flush=True)

    outcomes = batch.run_all(len(tasks), worker.main,
                             lambda i: (tasks, shapes, f"{folder}/{i}"), jobs, SECONDS, crashed,
                             report)
    return [outcomes[number][0] for number in range(len(tasks))]


def cell(record):
    if record["status"] == "equal":
        return f"{record['equal']}/{len(record['shapes'])}, {record['largest_error']:.2g}"
    return record["status"]


def seconds_cell(record):
    return f"{record['compile_seconds']:.1f}" if "compile_seconds" in record else ""


def markdown(entries, records, count, tolerance):
    """Returns the table of models by exporters, and the messages of what is not equal."""
    by_model = collections.defaultdict(dict)
    for record in records:
        by_model[record["model"]][record["exporter"]] = record
    exporters = list(dict.fromkeys(record["exporter"] for record in records))
    lines = ["# Models of PyTorch's exporters", "",
             "`experiments/run exporters` exports each model with all axes dynamic, compiles it "
             f"once, and runs it at {count} drawn shapes against PyTorch. Shapes that are equal; "
             f"the largest error as a share of what is allowed, {tolerance}; the processor "
             "seconds that its compilation took, import included.", "",
             "| group | model | | " + " | ".join(f"{e} | s" for e in exporters) + " |",
             "|---|---|---|" + "---|---:|" * len(exporters)]
    for entry in entries:
        cells = [f"{cell(by_model[entry.name][e])} | {seconds_cell(by_model[entry.name][e])}"
                 for e in exporters]
        lines.append(f"| {entry.group} | {entry.name} | {entry.about} | {' | '.join(cells)} |")
    counts = collections.Counter(record["status"] for record in records)
    lines += ["", ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) + "."]
    timed = [record for record in records if "compile_seconds" in record]
    if timed:
        slowest = max(timed, key=lambda record: record["compile_seconds"])
        lines += ["", f"The slowest compilation: {slowest['model']}, {slowest['exporter']}, "
                  f"{slowest['compile_seconds']:.1f} s."]
    rest = [record for record in records if record["status"] != "equal"]
    if rest:
        lines += ["", "## Not equal", ""]
        lines += [f"- **{record['model']}**, {record['exporter']}: {record['status']}. "
                  f"{record['message']}" for record in rest]
    return "\n".join(lines) + "\n"


def execute(options, arguments):
    from experiments.exporters import catalogue
    from experiments.harness import machine, report
    if not (ROOT / "build" / "bin" / "nimble-compile").exists():
        raise ExperimentError("build/bin/nimble-compile is not there; run scripts/build first")
    start = time.monotonic()
    entries = [entry for entry in catalogue.collect()
               if not options.filter or re.search(options.filter, entry.name)]
    exporters = [options.exporter] if options.exporter else catalogue.EXPORTERS
    tasks = [(entry, exporter) for entry in entries for exporter in exporters]
    if not tasks:
        raise ExperimentError("no model has such a name", FAILURE)
    with tempfile.TemporaryDirectory(prefix="exporters-") as folder:
        records = run_tasks(tasks, options.shapes, options.jobs, options.keep or folder)
    tolerance = f"{compare.ATOL:g} + {compare.RTOL:g} |PyTorch's|"
    text = markdown(entries, records, options.shapes, tolerance)
    if not options.filter and not options.exporter and options.shapes == SHAPES:
        import onnx
        import torch
        write = report.RESULTS / "exporters.json"
        report.write_json(write, {
            "format": FORMAT, "experiment": "exporters", "onnx": onnx.__version__,
            "torch": torch.__version__, **machine.provenance(arguments),
            "seconds": round(time.monotonic() - start, 1),
            "tolerance": {"rtol": compare.RTOL, "atol": compare.ATOL}, "records": records})
        write.with_suffix(".md").write_text(text, encoding="utf-8")
        print(f"wrote {write} and .md", file=sys.stderr)
    print(text, end="")
    return WRONG_RESULT if any(record["status"] in OURS for record in records) else 0


def main(arguments):
    return exit_code(lambda: execute(parse_arguments(arguments), ["exporters", *arguments]))
