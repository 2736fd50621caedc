"""The program behind `experiments/run`: its arguments.

The work is run.py's, that of `all` everything.py's.
"""

import argparse
import importlib
import pathlib
import sys

from experiments.harness import experiment as experiments
from experiments.harness import flags, systems
from experiments.harness.errors import USAGE, ExperimentError, exit_code

FULL = {"rounds": 9, "burst_us": 30_000}
QUICK = {"rounds": 5, "burst_us": 15_000}
QUICK_LENGTHS = 6
TVM_SECONDS, QUICK_TVM_SECONDS = 300, 20


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="experiments/run", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compares nimble with its peers on one model, in one interleaved run.",
        epilog="The table goes to standard output, progress to standard error. Results go to\n"
               "experiments/results/NAME.json, .md, .svg and .png; a run that leaves something out\n"
               "(--quick, --lengths, --threads, --cases, --peers, --no-nimble, --untuned) writes\n"
               "NAME-part.* instead, or NAME-LABEL.* with --label.\n\n"
               "exit codes: 0 done, 1 failure, 2 usage, 3 wrong result, or a bar that is not kept,\n"
               "130 interrupted")
    parser.add_argument("name", metavar="NAME", choices=experiments.NAMES,
                        help=f"experiment: {', '.join(experiments.NAMES)}; one that compares no "
                             f"speeds and has its own --help: {', '.join(experiments.PROGRAMS)}; "
                             "or all of them one after the other: all (with its own --help)")
    parser.add_argument("--setup", action="store_true",
                        help="only make the virtual environment (alone on the command line)")
    parser.add_argument("--threads", metavar="N[,N…]", help="thread counts, one case each")
    parser.add_argument("--lengths", metavar="L[,L…]",
                        help="numbers and ranges like 19,53,60-64, or all (default: all)")
    parser.add_argument("--cases", metavar="C[,C…]",
                        help="of an experiment with several, by the names of their tables without "
                             "threads, like “loop-2” (default: all)")
    parser.add_argument("--repetitions", type=int, metavar="N",
                        help=f"interleaved rounds at each length (default {FULL['rounds']})")
    flags.add_within(parser, "measure for so long in all, like 15m, the same time for each case: "
                             "all rounds of as many lengths as fit, from the middle outwards; each "
                             "then stands for those around it. What precedes (exporting, tuning, "
                             "compiling, starting) comes on top")
    parser.add_argument("--tvm-tuning", metavar="TIME", type=flags.budget,
                        help="that TVM's tuner gets for each model, of which it takes about a minute "
                             f"to begin (default {TVM_SECONDS}s, with --quick "
                             f"{QUICK_TVM_SECONDS}s)")
    parser.add_argument("--peers", metavar="P[,P…]",
                        help=f"of {', '.join(systems.PEERS)} (default: all of the experiment)")
    parser.add_argument("--no-nimble", action="store_true", help="measure the peers alone")
    parser.add_argument("--quick", action="store_true",
                        help=f"{QUICK_LENGTHS} lengths, {QUICK['rounds']} short rounds")
    parser.add_argument("--resume", action="store_true",
                        help="go on with an interrupted run of the same settings")
    flags.add_tuning(parser)
    parser.add_argument("--nimble-file", type=pathlib.Path, metavar="FILE",
                        help="run this compiled model instead of compiling")
    flags.add_label(parser)
    options = flags.parse(parser, arguments)
    if options.repetitions is not None and options.repetitions < 3:
        parser.error("--repetitions: an interval needs 3 or more")
    options.tvm_seconds = (flags.in_seconds(options.tvm_tuning) if options.tvm_tuning
                           else QUICK_TVM_SECONDS if options.quick else TVM_SECONDS)
    return options


def parse_threads(text, available):
    counts = [int(part) if part.isdigit() else 0 for part in text.split(",")]
    if min(counts) < 1 or max(counts) > available:
        raise ExperimentError(f"--threads {text}: this process may use 1 to {available} cores",
                              USAGE)
    return counts


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name == "all":
        from experiments.harness import everything
        return everything.main(sys.argv[2:])
    if name in experiments.PROGRAMS:
        return experiments.load_program(name)(sys.argv[2:])

    def execute():
        chosen = experiments.load(parse_arguments(sys.argv[1:]).name)
        return importlib.import_module(chosen.runner).Run(sys.argv[1:]).execute()
    return exit_code(execute, "interrupted; --resume goes on from here")


if __name__ == "__main__":
    sys.exit(main())
