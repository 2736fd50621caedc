"""`experiments/run memory-study`: what memory planning saves, and what dynamic extents cost.

BERT-base is compiled with and without the pass plan-memory: storages that a run makes, the time
they take, how often the system is asked. Image networks are compiled with dynamic extents and, for
the same extents, with fixed ones: how much more is live at the peak. (The paper, 5.3.)
"""

import argparse

from experiments.harness import flags
from experiments.harness.errors import WRONG_RESULT, ExperimentError, exit_code
from experiments.harness.experiment import BUILD
from experiments.memory_study import tables

FORMAT = 1
LENGTHS = (16, 37, 53, 64, 77, 104, 128)
WARM, RUNS, ROUNDS = 3, 20, 3


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="experiments/run memory-study", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measures what memory planning saves in BERT-base, and the footprint of image "
                    "networks with dynamic extents against a static plan.",
        epilog="The table goes to standard output, results to experiments/results/"
               "memory-study.json,\n.md, .svg and .png; --quick and --only write "
               "memory-study-part.*.\n\n"
               "exit codes: 0 every bar is kept, 3 not, 1 failure, 2 usage, 130 interrupted")
    parser.add_argument("--quick", action="store_true", help="three lengths, fewer runs")
    parser.add_argument("--only", metavar="NAME[,NAME…]", help="only these image networks")
    parser.add_argument("--threads", type=int, default=2, metavar="N",
                        help="(default %(default)s)")
    flags.add_database(parser, None, "default schedules, which need the same memory")
    return flags.parse(parser, arguments)


def probe(file, sizes, options):
    """Returns what probe.py finds of an executable at these extents."""
    from experiments.studies import programs
    return {"sizes": sizes, **programs.probe("experiments.memory_study.probe", {
        "file": str(file), "sizes": sizes, "threads": options.threads, "warm": WARM,
        "runs": 5 if options.quick else RUNS, "rounds": ROUNDS}, OPENBLAS_NUM_THREADS="1")}


def must_agree(name, one, other):
    """Raises where two executables of a model compute different outputs."""
    for a, b in zip(one["outputs"], other["outputs"], strict=True):
        # What is not a number, or infinite, agrees with nothing.
        if not all(abs(x - y) <= 1e-4 * max(1.0, min(abs(x), abs(y)))
                   for x, y in zip(a, b, strict=True)):
            raise ExperimentError(f"{name}: the executables disagree: outputs (least, largest, "
                                  f"mean) {a} and {b}", WRONG_RESULT)


def study_planning(options, folder):
    from experiments.memory_study import models
    from experiments.studies import programs
    model = models.bert_folder(folder)
    sizes = [{"b": 1, "n": n} for n in (LENGTHS[::3] if options.quick else LENGTHS)]
    planned, unplanned = (
        probe(programs.compiled("memory-study", model, folder / f"bert-{name}.nimble",
                                options.database, *more), sizes, options)
        for name, more in (("planned", ()), ("unplanned", ("--disable-pass", "plan-memory"))))
    must_agree("BERT-base", planned, unplanned)
    rows, changes = tables.compare_planning(planned, unplanned)
    return {"rows": rows, "changes": changes,
            "changing": [found["changing"]["system"] for found in (unplanned, planned)],
            "planned": planned, "unplanned": unplanned}


def study_footprint(options, folder):
    from experiments.memory_study import models
    from experiments.studies import programs
    wanted = options.only.split(",") if options.only else list(models.IMAGES)
    unknown = set(wanted) - set(models.IMAGES)
    if unknown:
        raise ExperimentError(f"no network is called {', '.join(sorted(unknown))}; there are "
                              f"{', '.join(models.IMAGES)}")
    found = {}
    for name in wanted:
        entry, sizes = models.IMAGES[name]
        path = models.export(entry, folder)
        fixed = ",".join(f"{symbol}={extent}" for symbol, extent in sizes.items())
        dynamic, static = (
            probe(programs.compiled("memory-study", path, folder / f"{entry.name}-{kind}.nimble",
                                    options.database, *more), [sizes], options)
            for kind, more in (("dynamic", ()), ("static", ("--shape", fixed))))
        must_agree(name, dynamic, static)
        found[name] = {"sizes": sizes, **tables.compare_footprint(dynamic, static)}
    return found


def execute(options, arguments):
    from experiments.harness import machine
    from experiments.studies import output, programs
    programs.need("nimble-compile")
    folder = BUILD / "memory-study"
    folder.mkdir(parents=True, exist_ok=True)
    result = {"format": FORMAT, "experiment": "memory-study", **machine.provenance(arguments),
              "machine": machine.describe(machine.choose_cores(options.threads)),
              "threads": options.threads, "paper": tables.PAPER,
              "planning": study_planning(options, folder),
              "footprint": study_footprint(options, folder)}
    result["bars"] = tables.bars(result)
    part = options.quick or options.only
    return output.finish("memory-study-part" if part else "memory-study", result, tables)


def main(arguments):
    return exit_code(lambda: execute(parse_arguments(arguments), ["memory-study", *arguments]))
