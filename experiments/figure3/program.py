"""`experiments/run figure3`: what kernels for the residues of a symbolic length are worth.

nimble-residue-bench compiles BERT's three dense layers with one schedule, tiles of eight rows: for
any length with 8, 4, 2 kernels and 1, and for each length alone. (The paper, Figure 3.)
"""

import argparse
import json

from experiments.figure3 import tables
from experiments.harness.errors import USAGE, ExperimentError, exit_code

FORMAT = 1
PROGRAM = "nimble-residue-bench"


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="experiments/run figure3", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compares dense kernels of a symbolic length, by number of residue kernels, "
                    "with kernels of a fixed length.",
        epilog="The table goes to standard output, results to experiments/results/figure3.json, "
               ".md,\n.svg and .png; --quick and --threads write figure3-part.*.\n\n"
               "exit codes: 0 the bar is kept, 3 not, 1 failure, 2 usage, 130 interrupted")
    parser.add_argument("--threads", type=int, default=1, metavar="N",
                        help="(default %(default)s: the code is what differs)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    return parser.parse_args(arguments)


def execute(options, arguments):
    from experiments.harness import machine
    from experiments.studies import output, programs
    if options.threads < 1:
        raise ExperimentError(f"--threads {options.threads}: one or more", USAGE)
    programs.need(PROGRAM)
    about = machine.describe(machine.choose_cores(options.threads))
    if "avx512f" not in about["features"]:
        raise ExperimentError("tiles of 8 rows need the registers of AVX-512, which this CPU lacks")
    found = json.loads(programs.call("figure3", [
        PROGRAM, "--threads", options.threads, "--rounds", 5 if options.quick else 15, "--runs", 5]))
    layers, means = tables.summarise(found["layers"])
    result = {"format": FORMAT, "experiment": "figure3", **machine.provenance(arguments),
              "machine": about, "threads": options.threads, "tile": found["rows"],
              "matrices": found["matrices"], "layers": layers, "means": means,
              "bars": tables.bars(means), "bursts": found["layers"]}
    part = options.quick or options.threads != 1
    return output.finish("figure3-part" if part else "figure3", result, tables)


def main(arguments):
    return exit_code(lambda: execute(parse_arguments(arguments), ["figure3", *arguments]))
