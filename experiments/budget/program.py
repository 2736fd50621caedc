"""`experiments/run budget`: whether `nimble tune --budget` keeps its promises on whole models.

Each model of models.py is tuned into a database of its own. What the campaign's report says is
compared with what was promised, and the process's own time with a clock outside of it:

    wall        the process's time, within 5 % of the budget; less only where the report says why
    working     share of it that compiled or timed candidates, 85 % or more
    tuned       workloads of 5 % of the model's time or more that have an active table: all of them
    told        the time left, told after a third and two thirds, off by 20 % at most
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from experiments.harness.errors import FAILURE, WRONG_RESULT, ExperimentError, exit_code
from experiments.harness.experiment import BUILD, ROOT

FORMAT = 1
SECONDS, EXPORTERS_SECONDS = 90, 20
OVER, WORKING, HOT, TOLD = 0.05, 0.85, 0.05, 0.20
NOTHING = "it has no workload that can be tuned"


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="experiments/run budget", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Tunes whole models for a while each, and checks what a budget promises.",
        epilog="The table goes to standard output, results to experiments/results/budget.json\n"
               "and .md (budget-exporters with --exporters); a run with --only, --seconds or\n"
               "--tune writes nothing. Other programs on the machine make the candidates fewer;\n"
               "the other figures hold beside them.\n\n"
               "exit codes: 0 every promise is kept, 3 not, 1 failure, 2 usage, 130 interrupted")
    parser.add_argument("--only", metavar="NAME[,NAME…]", help="only these models")
    parser.add_argument("--exporters", action="store_true", help="the models of `experiments/run "
                        "exporters` instead, most of them tiny: their budgets end early")
    parser.add_argument("--seconds", type=float, metavar="S",
                        help=f"budget of each (default {SECONDS}, with --exporters "
                             f"{EXPORTERS_SECONDS})")
    parser.add_argument("--threads", default="1", metavar="N", help="threads of the kernels "
                        "(default %(default)s)")
    parser.add_argument("--tune", type=pathlib.Path, default=ROOT / "build" / "bin" / "nimble-tune",
                        metavar="PROGRAM", help="nimble-tune of another build (one that lacks the "
                        "account has a table of fewer figures)")
    options = parser.parse_args(arguments)
    options.record = not (options.only or options.seconds or options.tune != parser.get_default(
        "tune"))
    options.seconds = options.seconds or (EXPORTERS_SECONDS if options.exporters else SECONDS)
    return options


def judge(report, seconds, budget):
    """Returns the record of one campaign: figures, and what was promised and not kept."""
    spending = report.get("spending", {})
    hot = [w for w in report["workloads"] if w["share"] >= HOT]
    # A table that is stored and not active serves nobody.
    tuned = [w for w in report["workloads"] if "table" in w and w.get("active", True)]
    untuned = [w["label"] for w in hot if w not in tuned]
    record = {
        "seconds": round(seconds, 2), "budget": budget, "over": seconds / budget - 1,
        "working_share": spending.get("working_share"),
        "candidates": spending.get("candidates", sum(w["trials"] for w in report["workloads"])),
        "told_errors": spending.get("told_errors", []), "activities": spending.get("seconds", {}),
        "workloads": len(report["workloads"]), "hot": len(hot),
        "tuned": len(tuned), "tuned_share": sum(w["share"] for w in tuned),
        "ended": report.get("ended", ""),
        "untuned_hot": untuned, "skipped": len(report["skipped"])}
    record["candidates_per_minute"] = 60 * record["candidates"] / seconds
    broken = []
    if record["over"] > OVER:
        broken.append(f"{100 * record['over']:.0f} % over the budget")
    # An older build's report has no such line.
    if record["over"] < -OVER and report.get("ended", "older") == "":
        broken.append("ended early without a reason")
    if record["working_share"] is not None and record["working_share"] < WORKING:
        broken.append(f"{100 * record['working_share']:.0f} % of the time worked")
    if untuned:
        broken.append(f"not tuned: {', '.join(untuned)}")
    if any(abs(error) > TOLD for error in record["told_errors"]):
        broken.append("time left mistold")
    record["broken"] = broken
    return record


def percent(value, sign=""):
    return "-" if value is None else f"{100 * value:{sign}.0f} %"


def markdown(records):
    """Returns the table."""
    lines = ["# Budgets", "",
             "`experiments/run budget` tunes each model and compares the report with the promise: "
             f"the budget exceeded by {percent(OVER)} at most, {percent(WORKING)} of the wall time, "
             "import included, compiles or times candidates, every workload of "
             f"{percent(HOT)} share or more is tuned, the time left told at each third is off by "
             f"{percent(TOLD)} at most. A campaign that ends before its budget says why.", "",
             "| model | wall | of budget | working | candidates/min | tuned | their share | "
             "hot ones | told off by | |", "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|"]
    for r in records:
        told = ", ".join(percent(error, "+") for error in r["told_errors"]) or "-"
        lines.append(
            f"| {r['model']} | {r['seconds']:.1f} s | {percent(r['over'], '+')} | "
            f"{percent(r['working_share'])} | {r['candidates_per_minute']:.0f} | "
            f"{r['tuned']} of {r['workloads']} | {percent(r['tuned_share'])} | "
            f"{r['hot'] - len(r['untuned_hot'])} of {r['hot']} | {told} | "
            f"{'; '.join(r['broken']) or ('kept: ' + r['ended'] if r['ended'] else 'kept')} |")
    lines += ["", "Where the time went, in percent:", ""]
    names = sorted({name for r in records for name in r["activities"]})
    lines += [f"| model | {' | '.join(names)} |", "|---|" + "---:|" * len(names)]
    for r in records:
        cells = [f"{100 * r['activities'].get(name, 0) / r['seconds']:.1f}" for name in names]
        lines.append(f"| {r['model']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def run_model(model, options, folder):
    """Returns the model's record; a line of text if there is nothing to judge."""
    try:
        path = model.export(folder)
    except Exception as error:  # PyTorch's exporters raise anything
        if not options.exporters:
            raise
        return f"not exported: {type(error).__name__}"
    with tempfile.TemporaryDirectory(prefix="budget-") as scratch:
        command = [str(options.tune), path, "--db", f"{scratch}/tuning.db", "--budget",
                   f"{options.seconds:g}s", "--threads", options.threads, "--format", "json",
                   "--quiet", *model.options]
        start = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.monotonic() - start
    if done.returncode != 0 and NOTHING in done.stderr:
        return NOTHING
    if done.returncode != 0:
        raise ExperimentError(f"{model.name}: nimble tune ended with {done.returncode}: "
                              f"{done.stderr.strip()[-400:]}", FAILURE)
    return {"model": model.name, "about": model.about,
            **judge(json.loads(done.stdout), seconds, options.seconds)}


def execute(options, arguments):
    from experiments.budget import models
    from experiments.harness import machine, report
    if not options.tune.exists():
        raise ExperimentError(f"{options.tune} is not there; run scripts/build first")
    there = models.of_exporters() if options.exporters else models.MODELS
    wanted = options.only.split(",") if options.only else [m.name for m in there]
    unknown = set(wanted) - {m.name for m in there}
    if unknown:
        raise ExperimentError(f"no model is called {', '.join(sorted(unknown))}; there are "
                              f"{', '.join(m.name for m in there)}")
    folder = BUILD / "budget"
    folder.mkdir(parents=True, exist_ok=True)
    about = machine.describe(machine.choose_cores(1))
    records, left_out = [], []
    for model in there:
        if model.name not in wanted:
            continue
        print(f"{model.name}: {options.seconds:g} s", file=sys.stderr, flush=True)
        record = run_model(model, options, folder)
        if isinstance(record, str):
            left_out.append(f"{model.name} ({record})")
            print(f"  {record}", file=sys.stderr, flush=True)
            continue
        records.append(record)
        print(f"  {'; '.join(record['broken']) or 'kept'}", file=sys.stderr, flush=True)
    text = markdown(records)
    if left_out:
        text += f"\nLeft out: {', '.join(left_out)}.\n"
    if options.record:
        write = report.RESULTS / ("budget-exporters.json" if options.exporters else "budget.json")
        report.write_json(write, {"format": FORMAT, "experiment": "budget",
                                  **machine.provenance(arguments), "machine": about,
                                  "records": records, "left_out": left_out})
        write.with_suffix(".md").write_text(text, encoding="utf-8")
        print(f"wrote {write} and .md", file=sys.stderr)
    print(text, end="")
    return WRONG_RESULT if any(r["broken"] for r in records) else 0


def main(arguments):
    return exit_code(lambda: execute(parse_arguments(arguments), ["budget", *arguments]))
