"""`experiments/run vendor`: a vendor's library (oneDNN) against nimble's own kernels.

Its routines take part in tuning wherever they can serve a workload. Each case, a model in a type, is
tuned at the shapes that it is run at, into a database of its own, and compiled three times: by the
tables (mixed), with nimble's best where they have a vendor's routine (own), and with a routine
wherever there is one (vendor). The three run interleaved, whole and profiled: so each workload and shape that a routine serves is timed
anew on both sides, and no luck of the search counts.
"""

import argparse
import json
import sys
import time
import types

from experiments.harness import flags, machine
from experiments.harness.errors import USAGE, WRONG_RESULT, ExperimentError, exit_code
from experiments.harness.experiment import BUILD
from experiments.vendor import models, records, tables
from experiments.vendor.models import CASES, MODELS, PRECISIONS
from experiments.vendor.records import MIXED, OWN, VENDOR

FORMAT = 1
BUILDS = (MIXED, OWN, VENDOR)
FULL = {"case_s": 450, "passes": 7, "rounds": 1, "burst_us": 30_000}
QUICK = {"case_s": 360, "passes": 3, "rounds": 1, "burst_us": 15_000}
QUICK_CASES = "minilm-f32"
TUNING = 0.6  # of a case's time
TOLERANCES = {"f32": 1e-4, "bf16": 0.05}  # largest difference of two builds, over the largest number
PROFILE_US, FEWEST_PROFILED, MOST_PROFILED = 60_000, 2, 30


def parse_arguments(arguments):
    known = ", ".join(CASES)
    parser = argparse.ArgumentParser(
        prog="experiments/run vendor", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compares nimble's kernels with oneDNN's, workload by workload and in whole "
                    "models, tuned with both.",
        epilog="The table goes to standard output, progress to standard error, results to\n"
               "experiments/results/vendor.json, .md, .svg and .png; a run that leaves something\n"
               "out (--quick, --only, --threads, less --within) writes vendor-part.*.\n\n"
               "exit codes: 0 all bars are kept, 3 not, or a wrong result, 1 failure, 2 usage,\n"
               "130 interrupted")
    flags.add_within(parser, "all of it but exports, the same time for each case: tuning takes "
                             f"{round(100 * TUNING)} %% of it, then what it left is measured "
                             f"(default {FULL['case_s']} s a case, with --quick "
                             f"{QUICK['case_s']} s)")
    parser.add_argument("--only", metavar="C[,C…]",
                        help=f"of {known} (default: all that this CPU has instructions for; with "
                             f"--quick {QUICK_CASES})")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="(default %(default)s)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_CASES} alone, few passes")
    parser.add_argument("--resume", action="store_true",
                        help="take what an earlier run with the same options measured of a case")
    options = flags.parse(parser, arguments)
    options.full = models.measured_on(machine.flags())
    chosen = (options.only or (QUICK_CASES if options.quick else ",".join(options.full))).split(",")
    unknown = set(chosen) - set(CASES)
    if unknown:
        parser.error(f"--only: no {', '.join(sorted(unknown))}; there are {known}")
    options.names = [name for name in CASES if name in chosen]
    return options


def tune(model, precision, folder, database, seconds, threads):
    """Tunes into a new database; returns what `nimble tune` says."""
    from experiments.studies import programs
    return programs.call_json("vendor", [
        "nimble-tune", model.make(folder), "--db", programs.fresh(database), "--threads", threads,
        "--budget", f"{max(1, round(seconds))}s", "--quiet",
        *model.sizes(database.with_suffix(".tsv")),
        *PRECISIONS[precision]])


def start(systems, name, files, threads):
    """Starts a worker for each executable."""
    for kind, file in files.items():
        systems.start(kind, types.SimpleNamespace(name=f"vendor/{name}"), kind, "nimble", threads,
                      machine.choose_cores(threads), {"nimble_file": str(file),
                                                      "server": "experiments.vendor.worker"})


def inspect(file):
    from experiments.studies import programs
    return programs.call_json("vendor", ["nimble-inspect", "--kernels", file])


def meet(name, file, threads):
    """Returns the sizes that the workloads of an executable are met at (records.met_sizes)."""
    from experiments.harness import pool
    with pool.Pool() as systems:
        start(systems, name, {MIXED: file}, threads)
        profiles = [systems.workers[MIXED].ask("profile", shape, 1)
                    for shape in MODELS[CASES[name][0]].shapes]
    return records.met_sizes(inspect(file), profiles)


def build(name, folder, found, threads):
    """Compiles the three; returns ({build: file}, {build: how often it decides otherwise and how
    often it could not})."""
    from experiments.studies import programs
    model, precision = CASES[name]
    files, changes, met = {}, {}, {}
    for kind in BUILDS:
        if kind == VENDOR:
            met = meet(name, files[MIXED], threads)
        database, changed, missing = found.copy(kind, folder / f"{name}-{kind}.db", met)
        changes[kind] = {"changed": changed, "missing": missing}
        files[kind] = folder / f"{name}-{kind}.nimble"
        programs.call("vendor", [
            "nimble-compile", MODELS[model].make(folder), "-o", files[kind], "--quiet",
            "--portable=off", "--db", database, *PRECISIONS[precision]])
    return files, changes


def check(workers, shape, tolerance):
    """Raises where a build gives another result than the one of the tables."""
    import numpy as np
    expected = np.asarray(workers[MIXED].ask("check", shape), np.float64)
    for kind, worker in workers.items():
        result = np.asarray(worker.ask("check", shape), np.float64)
        apart = float(np.max(np.abs(result - expected)) / np.max(np.abs(expected))) \
            if result.shape == expected.shape else float("inf")
        if not apart <= tolerance:  # NaN fails too
            raise ExperimentError(f"at {models.shape_text(shape)}: the build with {kind} kernels "
                                  f"differs from the one of the tables by {apart:.2g}, allowed "
                                  f"are {tolerance:g}", WRONG_RESULT)


def measure(name, files, threads, effort, seconds):
    """Returns for each shape {"shape", "rounds": {build: [µs]}, "calls": {build: [calls of a
    pass]}}. Passes go on until there are enough, or the next one would end after so many seconds.
    """
    from experiments.harness import measure as timing
    from experiments.harness import pool
    model, precision = CASES[name]
    kernels = {kind: tables.kernels_of(inspect(file)) for kind, file in files.items()}
    shapes = MODELS[model].shapes
    found = [{"shape": shape, "rounds": {kind: [] for kind in files},
              "calls": {kind: [] for kind in files}} for shape in shapes]
    with pool.Pool() as systems:
        start(systems, name, files, threads)
        for shape in shapes:
            check(systems.workers, shape, TOLERANCES[precision])
        begin = time.monotonic()
        for number in range(1, effort["passes"] + 1):
            for row in found:
                times = timing.time_rounds(systems.workers, row["shape"], effort["rounds"],
                                           effort["burst_us"])
                for kind, worker in systems.workers.items():
                    row["rounds"][kind] += times[kind]
                    runs = max(FEWEST_PROFILED, min(MOST_PROFILED,
                                                    int(PROFILE_US / times[kind][0])))
                    row["calls"][kind].append(tables.calls_of(
                        kernels[kind], worker.ask("profile", row["shape"], runs)))
            taken = time.monotonic() - begin
            if number >= QUICK["passes"] and taken * (number + 1) / number > seconds:
                break
    return found


def study(name, folder, effort, options, seconds):
    """Returns what is found of a case, as the result tells it."""
    from experiments.studies import programs
    model, precision = CASES[name]
    MODELS[model].make(folder)  # the export comes on top
    begin = time.monotonic()
    database = folder / f"{name}.db"
    campaign = tune(MODELS[model], precision, folder, database, TUNING * seconds, options.threads)
    found = records.Database(database, campaign, programs)
    files, changes = build(name, folder, found, options.threads)
    measured = measure(name, files, options.threads, effort,
                       max(0.0, seconds - (time.monotonic() - begin)))
    return {"name": name, "title": models.title_of(name), "tuned_s": campaign["consumed_s"],
            "changes": changes, "tables": len(found.tables), "searched": found.summary(),
            "refused": tables.refusals(campaign),
            **tables.summarise(measured), "seconds": time.monotonic() - begin}


def studied(name, folder, effort, options, seconds):
    """Returns what `study` does, or what an earlier run at this commit left of it in the folder."""
    from experiments.harness.report import write_json
    file = folder / f"{name}.json"
    key = {"format": FORMAT, "commit": machine.provenance([])["commit"], "effort": effort,
           "threads": options.threads, "cases": options.names}
    if options.resume and file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["key"] == key:
            print(f"vendor: {name}: measured by an earlier run", file=sys.stderr)
            return kept["found"]
    try:
        found = study(name, folder, effort, options, seconds)
    except ExperimentError as error:
        print(f"vendor: {name}: {error}; going on", file=sys.stderr, flush=True)
        return {"name": name, "title": models.title_of(name), "failure": str(error)}
    write_json(file, {"key": key, "found": found})
    return found


def execute(options, arguments):
    from experiments.images.pace import clock_text
    from experiments.studies import output, programs
    programs.need("nimble-tune", "nimble-dispatch", "nimble-db", "nimble-compile", "nimble-inspect")
    cores = machine.choose_cores(options.threads)
    if not 1 <= options.threads <= len(cores):
        raise ExperimentError(f"--threads {options.threads}: this process may use {len(cores)} "
                              "cores", USAGE)
    effort = dict(QUICK if options.quick else FULL)
    most = effort.pop("case_s") * len(options.names)
    effort["within"] = options.within or f"{most}s"
    folder = BUILD / "vendor"
    folder.mkdir(parents=True, exist_ok=True)
    about, whole, spent, cases = machine.describe(cores), flags.in_seconds(effort["within"]), 0.0, []
    left_out = [] if options.only or options.quick else \
        [name for name in CASES if name not in options.full]
    if left_out:
        print(f"vendor: without {', '.join(left_out)}: this CPU has no instructions for their type "
              "(--only measures them all the same)", file=sys.stderr)
    for number, name in enumerate(options.names):
        left = max(0.0, whole - spent)
        seconds = left / (len(options.names) - number)
        print(f"vendor: [{number + 1}/{len(options.names)}] {name}: {seconds:.0f} s, "
              f"{clock_text(left)} left of all", file=sys.stderr, flush=True)
        begin = time.monotonic()
        cases.append(studied(name, folder, effort, options, seconds))
        # What an earlier run measured has been paid for.
        spent += cases[-1].get("seconds", time.monotonic() - begin)
    result = {"format": FORMAT, "experiment": "vendor", **machine.provenance(["vendor", *arguments]),
              "machine": about, "threads": options.threads, "effort": effort, "seconds": spent,
              "models": cases, "left_out": left_out, "bars": tables.bars(cases)}
    part = options.quick or options.threads != 2 or options.names != options.full or whole < most
    return output.finish("vendor-part" if part else "vendor", result, tables)


def main(arguments):
    return exit_code(lambda: execute(parse_arguments(arguments), arguments),
                     "interrupted; --resume goes on from here")
