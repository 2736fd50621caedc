"""`experiments/run roofline`: whole models against what the machine can do at best.

Each model is compiled with the tables of a database and with default schedules; both run
interleaved, at a few lengths and numbers of threads. A profile tells what of a run is in which
kernels, the kernels tell what they compute and read, `nimble doctor --measure` tells the peaks.
"""

import argparse
import collections
import sys
import time
import types

from experiments.harness import flags
from experiments.harness.errors import USAGE, ExperimentError, exit_code
from experiments.harness.experiment import BUILD
from experiments.roofline import tables, work
from experiments.roofline.models import MODELS

FORMAT = 1
LENGTHS = (16, 17, 32, 37, 64, 67, 128, 131, 256, 251)
FULL = {"lengths": LENGTHS, "passes": 3, "rounds": 3, "burst_us": 30_000, "peak_s": 0.2}
QUICK = {"lengths": (16, 64, 67, 128), "passes": 1, "rounds": 3, "burst_us": 15_000, "peak_s": 0.05}
TUNE = "2m"  # for a model and the numbers of threads of which the database has nothing
TOLERANCE = 1e-4
PROFILE_US, FEWEST_PROFILED, MOST_PROFILED = 30_000, 3, 30
WITH_TABLES = ("tuned", "stale", "fallback")  # what `nimble compile` calls kernels with a table


def numbers(text):
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1 or len(set(found)) != len(found):
        raise argparse.ArgumentTypeError("different numbers from 1 on, like 1,2")
    return found


def parse_arguments(arguments):
    names = ", ".join(MODELS)
    parser = argparse.ArgumentParser(
        prog="experiments/run roofline", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compares whole models with the limits of arithmetic and memory, tuned and by "
                    "default schedules, and splits their time by kind of kernel.",
        epilog="The table goes to standard output, progress to standard error, results to\n"
               "experiments/results/roofline.json, .md, .svg and .png; a run that leaves\n"
               "something out (--quick, --untuned, --models, --threads, --lengths) writes\n"
               "roofline-part.*.\n\n"
               "exit codes: 0 all bars are kept, 3 not, or a wrong result, 1 failure, 2 usage,\n"
               "130 interrupted")
    flags.add_within(parser, "measure for about so long in all, like 6m: fewer rounds at each "
                             f"length, {FULL['rounds']} at least (default: "
                             f"{FULL['rounds'] * FULL['passes']} rounds, some ten minutes). "
                             "Exporting, tuning and compiling come on top")
    parser.add_argument("--models", default=",".join(MODELS), metavar="M[,M…]",
                        help=f"of {names} (default: all)")
    parser.add_argument("--threads", type=numbers, default=[1, 2], metavar="N[,N…]",
                        help="(default 1,2)")
    parser.add_argument("--lengths", type=numbers, metavar="L[,L…]",
                        help=f"(default {','.join(map(str, LENGTHS))})")
    flags.add_tuning(parser, otherwise=f"{TUNE} where it has no table of a product")
    parser.add_argument("--quick", action="store_true", help="four lengths, three short rounds")
    options = flags.parse(parser, arguments)
    options.names = options.models.split(",")
    unknown = set(options.names) - set(MODELS)
    if unknown:
        parser.error(f"--models: no {', '.join(sorted(unknown))}; there are {names}")
    return options


def tune(model, budget, threads, options):
    from experiments.studies import programs
    options.database.parent.mkdir(parents=True, exist_ok=True)
    programs.call("roofline", [
        "nimble-tune", model, "--db", options.database, "--fix", "b=1", "--budget", budget,
        "--threads", ",".join(map(str, threads)), "--quiet"])


def without_tables(report, threads):
    """Returns the numbers of threads for which no product of a compiled model has a table; of no
    report (None) all."""
    found = {number for kernel in report["kernels"] if kernel["outcome"] in WITH_TABLES
             and work.class_of([kernel["template"]]) in work.COUNTED
             for number in kernel["threads"]} if report else set()
    return [number for number in threads if number not in found]


def tuning_of(report):
    outcomes = collections.Counter(kernel["outcome"] for kernel in report["kernels"])
    return {"outcomes": dict(outcomes),
            "threads": sorted({n for kernel in report["kernels"] for n in kernel["threads"]})}


def build(name, folder, options):
    """Tunes where asked for or needed, and compiles; returns ({system: executable}, tuning)."""
    from experiments.studies import programs
    model = MODELS[name].make(folder)
    files = {tables.DEFAULT: folder / f"{name}-default.nimble"}
    programs.compile_model("roofline", model, files[tables.DEFAULT], None)
    if options.untuned:
        return files, None
    files = {tables.TUNED: folder / f"{name}-tuned.nimble", **files}

    def compile_tuned():
        return programs.compile_model("roofline", model, files[tables.TUNED], options.database)
    if options.tune:
        tune(model, options.tune, options.threads, options)
    report = compile_tuned() if options.database.exists() else None
    missing = without_tables(report, options.threads)
    if missing and not options.tune:
        tune(model, TUNE, missing, options)
        report = compile_tuned()
        missing = without_tables(report, options.threads)
    if missing:
        raise ExperimentError(
            f"{options.database} has no table of a product of {MODELS[name].title} for "
            f"{', '.join(map(str, missing))} threads after tuning; give it longer: --tune 5m")
    return files, tuning_of(report)


def inspect(file, study="roofline"):
    from experiments.studies import programs
    return work.read(programs.call_json(study, ["nimble-inspect", "--kernels", file]))


def measure_once(workers, kernels, length, effort, found):
    """Measures one length once more: some rounds, then a profile of each system."""
    from experiments.harness import measure
    for system, rounds in measure.time_rounds(workers, length, effort["rounds"],
                                              effort["burst_us"]).items():
        found["rounds"].setdefault(system, []).extend(rounds)
        runs = max(FEWEST_PROFILED, min(MOST_PROFILED, int(PROFILE_US / rounds[0])))
        found["accounts"].setdefault(system, []).append(
            work.account(kernels[system], workers[system].ask("profile", length, runs)))


def measure_case(files, kernels, threads, effort, seconds):
    """Returns what was measured at each length. Passes over all lengths go on until there are
    enough, or the next one would end after so many seconds (None: no bound)."""
    from experiments.harness import machine, measure, pool
    cores = machine.choose_cores(threads)
    found = {length: {"length": length, "rounds": {}, "accounts": {}}
             for length in effort["lengths"]}
    with pool.Pool() as systems:
        for system, file in files.items():
            systems.start(system, types.SimpleNamespace(name="roofline"), system, "nimble", threads,
                          cores, {"nimble_file": str(file),
                                  "server": "experiments.roofline.worker"})
        for length in effort["lengths"]:
            measure.check(systems.workers, next(iter(files)), TOLERANCE, length)
        begin = time.monotonic()
        for number in range(1, effort["passes"] + 1):
            for length in effort["lengths"]:
                measure_once(systems.workers, kernels, length, effort, found[length])
            taken = time.monotonic() - begin
            if seconds is not None and taken * (number + 1) / number > seconds:
                break
    return list(found.values())


class Progress:
    """Tells which case begins, and the time left by what the ones before took."""

    def __init__(self, costs):
        self.costs, self.done, self.begin = costs, 0, time.monotonic()

    def tell(self, text):
        passed, cost = time.monotonic() - self.begin, sum(self.costs[:self.done])
        left = f", about {passed / cost * sum(self.costs[self.done:]):.0f} s left" if cost else ""
        print(f"roofline: [{self.done + 1}/{len(self.costs)}] {text}{left}", file=sys.stderr,
              flush=True)
        self.done += 1


def execute(options, arguments):
    from experiments.harness import machine
    from experiments.studies import output, programs
    programs.need("nimble-compile", "nimble-tune", "nimble-inspect", "nimble-doctor")
    most = max(options.threads)
    cores = machine.choose_cores(most)
    if len(cores) < most:
        raise ExperimentError(f"--threads {most}: this process may use {len(cores)} cores", USAGE)
    effort = dict(QUICK if options.quick else FULL)
    effort["lengths"] = options.lengths or effort["lengths"]
    about = machine.describe(cores)
    folder = BUILD / "roofline"
    folder.mkdir(parents=True, exist_ok=True)
    built = {name: build(name, folder, options) for name in options.names}
    plan = [(name, threads) for name in options.names for threads in options.threads]
    costs = [MODELS[name].cost / threads for name, threads in plan]
    whole = flags.in_seconds(options.within) if options.within else None
    progress, measured, peaks = Progress(costs), [], []
    begin = time.monotonic()
    for (name, threads), cost in zip(plan, costs):
        progress.tell(f"{MODELS[name].title}, {tables.threads_text(threads)}")
        if threads == options.threads[0]:  # the clock of an hour ago may have been another
            peaks.append(programs.measure_peaks("roofline", options.threads, effort["peak_s"]))
            files, tuning = built[name]
            kernels = {system: inspect(file) for system, file in files.items()}
        seconds = whole * cost / sum(costs) if whole else None
        measured.append({"name": name, "title": MODELS[name].title, "threads": threads,
                         "tuning": tuning, "lengths": measure_case(files, kernels, threads, effort,
                                                                   seconds)})
    peaks.append(programs.measure_peaks("roofline", options.threads, effort["peak_s"]))
    roofs = {str(threads): tables.roofs(peaks, threads) for threads in options.threads}
    cache = tables.last_cache(about["caches"])
    cases = []
    for case in measured:
        roof = roofs[str(case["threads"])]
        rows = [tables.summarise(row, roof, cache) for row in
                sorted(case["lengths"], key=lambda row: row["length"])]
        cases.append({**case, "lengths": rows, "workloads": tables.workloads(rows, roof)})
    doubts = tables.doubts(roofs, cases)
    result = {"format": FORMAT, "experiment": "roofline", **machine.provenance(arguments),
              "machine": about, "last_cache": cache, "roofs": roofs,
              "within": options.within, "seconds": time.monotonic() - begin, "cases": cases,
              "doubts": doubts, "bars": tables.bars(cases, bool(doubts))}
    part = options.quick or options.untuned or options.lengths or options.threads != [1, 2] \
        or set(options.names) != set(MODELS)
    return output.finish("roofline-part" if part else "roofline", result, tables)


def main(arguments):
    return exit_code(lambda: execute(parse_arguments(arguments), ["roofline", *arguments]))
