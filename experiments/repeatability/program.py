"""`experiments/run repeatability`: another seed's executable, and what our comparisons can tell.

Each model is tuned twice, by campaigns that differ in their seed alone. Then the first executable
is compared with itself, pair by pair, and with itself slowed by a known share (worker.py), by the
statistics of the harness and of experiments/compare: how often is a difference told that is none,
and how often is one found that was planted.
"""

import argparse
import dataclasses
import sys
import time

from experiments.harness import flags
from experiments.harness import experiment as experiments
from experiments.harness.errors import USAGE, ExperimentError, exit_code
from experiments.repeatability import tables

FORMAT = 1
SEEDS = (1, 2)
# name → (title, threads, lengths at which seeds are compared, lengths of the pairs)
MODELS = {"minilm": ("all-MiniLM-L6-v2", 2, (16, 27, 37, 53, 64, 77, 104, 128), (19, 37, 53, 64)),
          "lstm/loop-1": ("LSTM 300 → 512, one layer", 1, (5, 9, 13, 19, 25, 31, 37, 45),
                          (9, 19, 25, 37))}
FULL = {"budget": "75s", "pairs": 60, "rounds": 15, "burst_us": 15_000}
QUICK = {"budget": "12s", "pairs": 8, "rounds": 7, "burst_us": 10_000}


def parse_arguments(arguments):
    names = ", ".join(MODELS)
    parser = argparse.ArgumentParser(
        prog="experiments/run repeatability", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Tunes models twice with different seeds and compares the executables; compares "
                    "one executable with itself, and with itself slowed by 3 %.",
        epilog="The table goes to standard output, results to experiments/results/"
               "repeatability.json,\n.md, .svg and .png; a run that leaves something out writes "
               "repeatability-part.*.\nThe time is about four budgets and as many seconds as there "
               "are pairs in all.\n\n"
               "exit codes: 0 all bars are kept, 3 not, 1 failure, 2 usage, 130 interrupted")
    parser.add_argument("--models", default=",".join(MODELS), metavar="M[,M…]",
                        help=f"of {names} (default: all)")
    parser.add_argument("--budget", metavar="TIME", type=flags.budget,
                        help=f"of each campaign (default {FULL['budget']}, with --quick "
                             f"{QUICK['budget']})")
    parser.add_argument("--pairs", type=int, metavar="N",
                        help=f"of a model: so many with itself and as many planted (default "
                             f"{FULL['pairs']}, with --quick {QUICK['pairs']})")
    parser.add_argument("--quick", action="store_true", help="short campaigns, few pairs")
    options = parser.parse_args(arguments)
    options.names = options.models.split(",")
    unknown = set(options.names) - set(MODELS)
    if unknown:
        parser.error(f"--models: no {', '.join(sorted(unknown))}; there are {names}")
    if options.pairs is not None and options.pairs < 1:
        parser.error("--pairs: one or more")
    return options


def build(experiment, seed, folder, budget):
    """Tunes and compiles with one seed; returns the executable. What an earlier run of this program
    tuned does not count."""
    from experiments.harness import models
    model = experiment.nimble_models(folder)["nimble"]
    database = folder / f"seed-{seed}.db"
    for old in folder.glob(f"{database.name}*"):
        old.unlink()
    models.run_nimble(experiment, [
        *models.tune_command(experiment, "nimble", model, database, budget), "--seed", str(seed),
        "--quiet"])
    file = folder / f"seed-{seed}.nimble"
    models.run_nimble(experiment, [
        str(models.BIN / "nimble"), "compile", model, *experiment.nimble_options, "-o", str(file),
        "--db", str(database), "--quiet"])
    return file


def start(pool, experiment, name, file, threads, cores):
    pool.start(name, experiment, f"repeatability-{name}", "nimble", threads, cores,
               {"nimble_file": str(file), "server": "experiments.repeatability.worker"})


def measure_pairs(workers, lengths, count, effort, tell):
    """Returns the records of `count` pairs of each kind. Kinds alternate and lengths go round, so
    that an hour in which the machine is slower meets all alike; of a planted pair the second is
    slower."""
    from experiments.harness import measure
    pairs = []
    for number in range(2 * count):
        kind = ("same", "planted")[number % 2]
        length = lengths[number // 2 % len(lengths)]
        workers["second"].ask("plant", tables.PLANTED if kind == "planted" else 0)
        rounds = measure.time_rounds(workers, length, effort["rounds"], effort["burst_us"])
        pairs.append({"kind": kind, "length": length, **tables.verdicts(rounds, length)})
        tell(number + 1)
    workers["second"].ask("plant", 0)
    return pairs


def measure_model(name, effort):
    from experiments.harness import machine, measure, models, pool
    title, threads, lengths, pair_lengths = MODELS[name]
    experiment = dataclasses.replace(experiments.load(name), threads=(threads,))
    cores = machine.choose_cores(threads)
    if len(cores) < threads:
        raise ExperimentError(f"{title} takes {threads} cores, this process may use {len(cores)}",
                              USAGE)
    folder = models.folder(experiment) / "repeatability"
    folder.mkdir(exist_ok=True)
    files = {seed: build(experiment, seed, folder, effort["budget"]) for seed in SEEDS}
    counts = experiment.histogram()
    found, differences = {}, {}
    with pool.Pool() as both:
        for system, seed in zip(("first", "second"), SEEDS):
            start(both, experiment, system, files[seed], threads, cores)
        for length in lengths:
            differences[length] = measure.check(both.workers, "first", experiment.tolerance,
                                                length)["second"]
            found[length] = measure.time_rounds(both.workers, length, effort["rounds"],
                                                2 * effort["burst_us"])
    with pool.Pool() as same:
        for system in ("first", "second"):
            start(same, experiment, system, files[SEEDS[0]], threads, cores)

        def tell(done):
            if done % 20 == 0:
                print(f"repeatability: {title}: [{done}/{2 * effort['pairs']}] pairs",
                      file=sys.stderr, flush=True)
        pairs = measure_pairs(same.workers, pair_lengths, effort["pairs"], effort, tell)
    return {"threads": threads, "seeds": tables.seeds(found, counts), "pairs": pairs,
            "rates": tables.rates(pairs), "difference": max(differences.values()),
            "rounds_us": {str(length): rounds for length, rounds in found.items()}}


def execute(options, arguments):
    from experiments.harness import machine
    from experiments.studies import output
    effort = dict(QUICK if options.quick else FULL)
    effort["budget"] = options.budget or effort["budget"]
    effort["pairs"] = options.pairs or effort["pairs"]
    begin = time.monotonic()
    models = {MODELS[name][0]: measure_model(name, effort) for name in options.names}
    result = {"format": FORMAT, "experiment": "repeatability", **machine.provenance(arguments),
              "machine": machine.describe(machine.choose_cores(2)), "budget": effort["budget"],
              "effort": effort, "seeds": SEEDS, "planted": tables.PLANTED, "rules": tables.RULES,
              "models": models, "bars": tables.bars(models), "seconds": time.monotonic() - begin}
    part = options.quick or options.budget or options.pairs or set(options.names) != set(MODELS)
    return output.finish("repeatability-part" if part else "repeatability", result, tables)


def main(arguments):
    return exit_code(lambda: execute(parse_arguments(arguments), ["repeatability", *arguments]))
