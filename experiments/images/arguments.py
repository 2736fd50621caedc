"""The options of the experiments on image networks."""

import argparse

from experiments.harness import flags
from experiments.images import tables
from experiments.images.networks import OWN
from experiments.images.pace import TUNING

TOTAL, QUICK_TOTAL = "90m", "12m"


def parse(run, what, description, arguments):
    """Returns the options, with `names`: those that were chosen. run: a class like program.Run;
    what: the things that it measures one by one."""
    name, known = run.NAME, ", ".join(run.NAMES)
    parser = argparse.ArgumentParser(
        prog=f"experiments/run {name}", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"{description}, at {tables.sides(OWN)} and over random sizes.",
        epilog="The table goes to standard output, progress to standard error, results to\n"
               f"experiments/results/{name}.json, .md, .svg and .png; a run that leaves something\n"
               "out (--quick, --untuned, --only, --sizes, --peers, --threads, less --total) writes\n"
               f"{name}-part.* instead, or {name}-LABEL.* with --label.\n\n"
               "exit codes: 0 all bars are kept, 3 not, or a wrong result, 1 failure, 2 usage,\n"
               "130 interrupted")
    parser.add_argument("--total", metavar="TIME", type=flags.budget,
                        help=f"all of it, the same time for each {what}: exporting, tuning where "
                             "the database has no table, compiling (that of the peers too), "
                             f"measuring as many sizes as fit (default {TOTAL}, with --quick "
                             f"{QUICK_TOTAL}). What --tune asks for comes on top")
    flags.add_within(parser, "measure for so long in all, like 30m, at most, the same time for "
                             f"each {what}")
    parser.add_argument("--only", "--networks", dest="networks", metavar="N[,N…]",
                        help=f"of {known} (default: all; with --quick {run.QUICK_NAMES})")
    parser.add_argument("--sizes", type=int, metavar="N",
                        help=f"drawn heights and widths, at most (default {run.SIZES}, with --quick "
                             f"{run.QUICK_SIZES})")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="(default %(default)s)")
    parser.add_argument("--peers", metavar="P[,P…]",
                        help=f"of {', '.join(run.PEERS)} (default: all)")
    parser.set_defaults(winograd=False)
    if run.WINOGRAD:
        parser.add_argument("--winograd", action="store_true",
                            help="measure nimble with convolutions by Winograd's tiles of 2 × 2 and "
                                 "4 × 4 pixels, too: a table of its own, with errors against f64. "
                                 f"Results go to experiments/results/{name}-winograd*.*")
    flags.add_tuning(parser, what, f"{round(100 * TUNING)} %% of its time where the database has "
                                   "no table of a convolution or product")
    parser.add_argument("--quick", action="store_true",
                        help=f"{run.QUICK_NAMES} alone, few sizes, short rounds")
    parser.add_argument("--resume", action="store_true",
                        help="go on with an interrupted run of the same settings, in what is left "
                             "of its time")
    flags.add_label(parser, name)
    options = flags.parse(parser, arguments)
    if options.sizes is not None and options.sizes < 0:
        parser.error("--sizes: 0 or more")
    chosen = options.networks or (run.QUICK_NAMES if options.quick else ",".join(run.NAMES))
    unknown = set(chosen.split(",")) - set(run.NAMES)
    if unknown:
        parser.error(f"--only: no {', '.join(sorted(unknown))}; there are {known}")
    options.names = [name for name in run.NAMES if name in chosen.split(",")]
    options.total = options.total or (QUICK_TOTAL if options.quick else TOTAL)
    return options
