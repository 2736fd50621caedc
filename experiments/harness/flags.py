"""Options that several experiments have, so that each means the same in all of them: --database,
--tune, --untuned and --within.

`experiments/run all` hands --tune BUDGET and --within TIME on to whatever has them in its --help by
these names.
"""

import argparse
import pathlib
import re

from experiments.harness.experiment import BUILD

DATABASE = BUILD / "tuning.db"
UNITS = {"s": 1, "m": 60, "h": 3600}


def budget(text):
    if not re.fullmatch(r"[1-9]\d*[smh]", text):
        raise argparse.ArgumentTypeError("a number of seconds, minutes or hours like 90s, 5m or 1h")
    return text


def in_seconds(text):
    """Returns the seconds of a `budget`."""
    return int(text[:-1]) * UNITS[text[-1]]


def add_within(parser, meaning):
    """Adds --within TIME, which bounds a run as `meaning` tells."""
    parser.add_argument("--within", metavar="TIME", type=budget, help=meaning)


def add_database(parser, otherwise=DATABASE, why=""):
    """Adds --database FILE; without it the records of `otherwise` are used, or, if that is None,
    none: `why` says so."""
    parser.add_argument("--database", type=pathlib.Path, metavar="FILE", default=otherwise,
                        help=f"tuning database to compile with (default: {why or '%(default)s'})")


def add_untuned(parser, meaning="compile without a database: default schedules"):
    parser.add_argument("--untuned", action="store_true", help=meaning)


def add_tuning(parser, what="model", otherwise=""):
    """Adds --database, --tune and --untuned. what: the things that --tune tunes, one by one;
    otherwise: what happens without it, in words."""
    add_database(parser)
    default = f" (default: {otherwise})" if otherwise else ""
    parser.add_argument("--tune", metavar="BUDGET", type=budget,
                        help=f"first tune each {what} for so long, like 5m, into the database"
                             f"{default}; what an earlier run tuned goes on")
    add_untuned(parser)


def add_label(parser, name="NAME"):
    """Adds --label, a name of its own for the results of a run. name: that they have without."""
    parser.add_argument("--label", metavar="TEXT", help=f"write {name}-TEXT.*")


def parse(parser, arguments):
    """Returns the options; refuses --tune with --untuned, and labels that make no file's name."""
    options = parser.parse_args(arguments)
    if getattr(options, "tune", None) and getattr(options, "untuned", False):
        parser.error("--tune and --untuned exclude each other")
    label = getattr(options, "label", None)
    if label is not None and not label.replace("-", "").isalnum():
        parser.error("--label: letters, digits and hyphens only")
    return options
