"""`experiments/run table4`: the virtual machine against a static build at length 128.

The model is compiled twice: for any length, and for this one alone. The static executable's kernels
are called in a row from memory that is there before, without the machine (nimble-replay-bench), as
a static runtime would. The dynamic one runs by the machine; its own kernels called in a row tell
what of its time is not theirs. (The paper, Table 4.)
"""

import argparse
import json

from experiments.harness import flags
from experiments.harness.errors import exit_code
from experiments.harness.experiment import BUILD
from experiments.table4 import tables

FORMAT = 1
LENGTH = 128
ROUNDS, RUNS = 21, 7
TITLES = {"bert-base": "BERT-base, f32", "minilm": "all-MiniLM-L6-v2, f32"}


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="experiments/run table4", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compares the virtual machine with a static build of the same model: kernels "
                    "and other instructions.",
        epilog="The table goes to standard output, results to experiments/results/table4.json, .md,"
               "\n.svg and .png; runs that leave something out write table4-part.*.\n\n"
               "exit codes: 0 both bars are kept, 3 not, 1 failure, 2 usage, 130 interrupted")
    parser.add_argument("--model", choices=TITLES, default="bert-base",
                        help="(default %(default)s)")
    parser.add_argument("--threads", default="1,2", metavar="N[,N…]", help="(default %(default)s)")
    parser.add_argument("--budget", "--tune", default="10m", metavar="BUDGET",
                        help="of tuning, for each of the two builds (default %(default)s); tuning "
                             "goes on where an earlier run left off")
    flags.add_untuned(parser, "default schedules in both")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    options = parser.parse_args(arguments)
    try:
        options.thread_counts = [int(part) for part in options.threads.split(",")]
    except ValueError:
        parser.error(f"--threads {options.threads}: numbers")
    return options


def model_folder(name, folder):
    if name == "minilm":
        from experiments.minilm.model import folder as minilm
        return minilm()
    from experiments.memory_study.models import bert_folder
    return bert_folder(folder)


def build(name, model, folder, options):
    """Tunes and compiles one of the two builds; returns the executable and the account."""
    from experiments.studies import programs
    shape = ["--shape", f"b=1,n={LENGTH}"] if name == "static" else []
    database = folder / f"{options.model}-{name}.db"
    account = {"trials": 0, "workloads": 0}
    if not options.untuned:
        trace = [] if shape else ["--fix", "b=1"]
        report = programs.call_json("table4", [
            "nimble-tune", model, *shape, *trace, "--db", database, "--budget", options.budget,
            "--threads", options.threads, "--quiet"])
        account = {"trials": sum(w["trials"] for w in report["workloads"]),
                   "workloads": len(report["workloads"])}
    file = folder / f"{options.model}-{name}.nimble"
    programs.call("table4", ["nimble", "compile", model, *shape, "-o", file, "--quiet",
                             "--portable=off", *([] if options.untuned else ["--db", database])])
    return file, account


def execute(options, arguments):
    from experiments.harness import machine
    from experiments.studies import output, programs
    programs.need("nimble", "nimble-tune", "nimble-replay-bench")
    folder = BUILD / "table4"
    folder.mkdir(parents=True, exist_ok=True)
    model = model_folder(options.model, folder)
    files, tuning = {}, {}
    for name in ("dynamic", "static"):
        files[name], tuning[name] = build(name, model, folder, options)
    rows = []
    for threads in options.thread_counts:
        dynamic, static = json.loads(programs.call("table4", [
            "nimble-replay-bench", "--set", "b=1", "--set", f"n={LENGTH}", "--threads", threads,
            "--rounds", 5 if options.quick else ROUNDS, "--runs", RUNS, files["dynamic"],
            files["static"]]))
        rows.append({"threads": threads, **tables.summarise(dynamic, static),
                     "bursts_us": {name: {key: found[key] for key in ("run_us", "replay_us")}
                                   for name, found in (("dynamic", dynamic), ("static", static))}})
    worst = {bar["name"]: bar for row in rows for bar in tables.bars(row)
             if bar["value"] == max(b["value"] for r in rows for b in tables.bars(r)
                                    if b["name"] == bar["name"])}
    part = options.quick or options.untuned or options.threads != "1,2" \
        or options.model != "bert-base"
    result = {"format": FORMAT, "experiment": "table4", **machine.provenance(arguments),
              "title": TITLES[options.model], "length": LENGTH,
              "machine": machine.describe(machine.choose_cores(max(options.thread_counts))),
              "budget": "not at all" if options.untuned else f"{options.budget} each",
              "tuning": tuning, "rows": rows, "paper": tables.PAPER, "bars": list(worst.values())}
    return output.finish("table4-part" if part else "table4", result, tables)


def main(arguments):
    return exit_code(lambda: execute(parse_arguments(arguments), ["table4", *arguments]))
