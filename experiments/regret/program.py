"""`experiments/run regret`: what dispatch tables lose at shapes that nobody measured.

Tunes the products of models.py on joint rows that one seed draws, and lets `nimble dispatch report`
try the tables at shapes that another draws.
"""

import argparse
import hashlib
import json
import math
import pathlib
import sys
import time

from experiments.harness import flags
from experiments.harness.errors import USAGE, ExperimentError, exit_code
from experiments.harness.experiment import BUILD
from experiments.harness.report import write_json
from experiments.regret import tables

FORMAT = 1
# Symbols and their largest sizes; the share of the time that tuning and trying may take. The last
# model is tried for whatever the others left.
MODELS = {"bert": ("BERT-base's products", {"b": 16, "n": 512}, 0.25, 0.62),
          "convolution": ("convolution", {"h": 128, "w": 128}, 0.06, 0.07)}
ROWS, TRACE_SEED, TRIED_SEED = 200, 11, 12
TOP_K, SEARCH_TRIALS = 100, 100
LOOK = "2s"  # at a shape's candidates; of the largest shapes fewer than TOP_K take part
# Of each workload. BERT's layer has five, so they make 300 and 40 together, less the shapes that
# tuning measured.
FULL = {"within": "40m", "bert": (40, 4), "convolution": (160, 20)}
QUICK = {"within": "100s", "bert": (3, 1), "convolution": (4, 1)}
SHAPES, SEARCHES = {"bert": 150, "convolution": 150}, 40  # at least


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="experiments/run regret", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Tunes BERT's products and a convolution on drawn shapes and measures what the "
                    "tables lose at others.",
        epilog="The table goes to standard output, results to experiments/results/regret.json, .md,"
               "\n.svg and .png; a run that leaves something out writes regret-part.*.\n\n"
               "exit codes: 0 all bars are kept, 3 not, 1 failure, 2 usage, 130 interrupted")
    flags.add_within(parser, "all of it: tuning takes a third, then shapes are tried, then "
                             f"searches are made until it ends (default {FULL['within']}, with "
                             f"--quick {QUICK['within']})")
    parser.add_argument("--shapes", type=int, metavar="N",
                        help="of each workload (default: so many that all together are "
                             f"{sum(SHAPES.values())} or more); {SEARCHES} searches are spread over "
                             "them")
    parser.add_argument("--resume", action="store_true",
                        help="take what an earlier run with the same options measured of a model")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="(default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a few shapes")
    options = parser.parse_args(arguments)
    if options.shapes is not None and options.shapes < 1:
        parser.error("--shapes: one or more")
    return options


def draw_rows(ranges, count, seed):
    """Returns rows of sizes, each drawn evenly by ratio from 1 to its largest."""
    import numpy as np
    random = np.random.default_rng(seed)
    largest = np.array(list(ranges.values()))
    sizes = np.exp(random.uniform(0, np.log(largest + 1), (count, len(largest)))).astype(int)
    return np.minimum(sizes, largest).tolist()


def write_trace(path, ranges):
    rows = ["\t".join(map(str, row)) for row in draw_rows(ranges, ROWS, TRACE_SEED)]
    path.write_text("\n".join(["\t".join(ranges), *rows]) + "\n", encoding="utf-8")
    return f"{path}:{','.join(ranges)}"


def measure(name, model, folder, effort, options, spent):
    """Tunes a model and tries its tables, `spent` seconds after the run began; returns what is
    kept of both."""
    from experiments.studies import programs
    _, ranges, tuning, trying = MODELS[name]
    whole, begin = flags.in_seconds(effort["within"]), time.monotonic()
    database = programs.fresh(folder / f"{name}.db")
    common = [model, "--db", database, "--threads", options.threads, "--quiet"]
    campaign = programs.call_json("regret", [
        "nimble-tune", *common, "--trace", write_trace(folder / f"{name}.tsv", ranges),
        "--budget", f"{math.ceil(tuning * whole)}s"])
    seconds = trying * whole
    if name == list(MODELS)[-1]:
        seconds = max(seconds, whole - spent - (time.monotonic() - begin))
    shapes, searches = effort[name]
    report = programs.call_json("regret", [
        "nimble-dispatch", "report", *common, "--budget", f"{math.ceil(seconds)}s",
        *(word for s, most in ranges.items() for word in ("--range", f"{s}=1..{most}")),
        "--shapes", shapes, "--seed", TRIED_SEED, "--top-k", TOP_K, "--searches", searches,
        "--search-trials", SEARCH_TRIALS, "--look", LOOK,
        "--heat-map", folder / f"{name}.svg"])
    return {"tuned": campaign["consumed_s"], "bounds": tables.bounds_of(campaign),
            "report": report, "seconds": time.monotonic() - begin}


def measured(name, model, folder, effort, options, spent):
    """Returns what `measure` does, or what an earlier run at this commit left of it in the folder:
    the result names one commit for all of its figures."""
    from experiments.harness import machine
    file = folder / f"{name}.json"
    key = {"format": FORMAT, "commit": machine.provenance([])["commit"], "model": hashlib.sha256(model.read_bytes()).hexdigest(),
           "threads": options.threads, "within": effort["within"], "effort": list(effort[name]),
           "seeds": [TRACE_SEED, TRIED_SEED], "search": [TOP_K, SEARCH_TRIALS, LOOK, ROWS]}
    if options.resume and file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["key"] == key:
            print(f"regret: {MODELS[name][0]}: measured {kept['finished']}", file=sys.stderr)
            return kept
    found = {"key": key, **measure(name, model, folder, effort, options, spent),
             "finished": time.strftime("%Y-%m-%d %H:%M:%S")}
    write_json(file, found)
    return found


def execute(options, arguments):
    from experiments.harness import machine
    from experiments.regret import models
    from experiments.studies import output, programs
    programs.need("nimble-tune", "nimble-dispatch", "nimble-compile")
    cores = machine.choose_cores(options.threads)
    if len(cores) < options.threads:
        raise ExperimentError(f"--threads {options.threads}: this process may use {len(cores)} "
                              "cores", USAGE)
    effort = dict(QUICK if options.quick else FULL)
    effort["within"] = options.within or effort["within"]
    if options.shapes:
        for name in MODELS:
            effort[name] = (options.shapes, min(options.shapes, effort[name][1]))
    begin = time.monotonic()
    folder = pathlib.Path(BUILD / "regret")
    folder.mkdir(parents=True, exist_ok=True)
    files = {"bert": models.write_bert(folder), "convolution": models.write_convolution(folder)}
    for file in files.values():  # what is wrong with one is told now, not behind the other's hour
        programs.call("regret", ["nimble-compile", file, "-o", file.with_suffix(".nimble"),
                                 "--portable=off", "--quiet"])
    found, reports, tuned, bounds, seconds = {}, {}, {}, {}, time.monotonic() - begin
    for name, (title, *_) in MODELS.items():
        kept = measured(name, files[name], folder, effort, options, seconds)
        seconds += kept["seconds"]
        tuned[name], bounds[title], reports[title] = kept["tuned"], kept["bounds"], kept["report"]
        found[title] = tables.summarise(kept["report"], kept["bounds"])
        print(f"regret: {title}: {found[title]['shapes']} shapes, {found[title]['searches']} "
              f"searches, {seconds:.0f} s", file=sys.stderr, flush=True)
    result = {"format": FORMAT, "experiment": "regret", **machine.provenance(arguments),
              "machine": machine.describe(cores), "threads": options.threads, "tuned": tuned,
              "top_k": TOP_K, "look": LOOK, "search_trials": SEARCH_TRIALS,
              "seeds": {"tuned": TRACE_SEED, "tried": TRIED_SEED}, "within": effort["within"],
              "seconds": seconds, "bounds": bounds, "models": found,
              "reports": reports,
              "bars": tables.bars(
                  found, {title: 0 if options.quick else SHAPES[name]
                          for name, (title, *_) in MODELS.items()},
                  0 if options.quick else SEARCHES)}
    part = options.quick or options.shapes or options.threads != 2 or \
        flags.in_seconds(effort["within"]) < flags.in_seconds(FULL["within"])
    return output.finish("regret-part" if part else "regret", result, tables)


def main(arguments):
    return exit_code(lambda: execute(parse_arguments(arguments), ["regret", *arguments]))
