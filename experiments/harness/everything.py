"""`experiments/run all`: every experiment, one after the other; one that fails ends nothing.

The list is made of the folders. Each experiment runs in a process of its own, as `experiments/run
NAME` would. What has ended well is noted in build/experiments/all.json, so that --resume goes on
with the rest, and how long each took, so that the next run can tell the time that is left. One that
has written its results though a bar of them is not kept has been run; it fails all the same.
"""

import argparse
import json
import re
import subprocess
import sys
import time

from experiments.harness import machine, report
from experiments.harness import experiment as experiments
from experiments.harness.errors import (FAILURE, INTERRUPTED, USAGE, WRONG_RESULT,
                                        ExperimentError, exit_code)
from experiments.harness.flags import DATABASE, add_untuned, add_within, budget, parse

STATE = experiments.BUILD / "all.json"
TUNE = "5m"


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="experiments/run all", description="Runs every experiment, and goes on after one that "
        "failed. Each writes its own results; experiments/report makes one page of them.",
        epilog="exit codes: 0 all done, 1 some failed, 2 usage, 130 interrupted")
    parser.add_argument("--quick", action="store_true", help="short runs, where an experiment has "
                        "them (and no tuning but what --tune says)")
    parser.add_argument("--resume", action="store_true",
                        help="leave out what an interrupted run of the same settings has finished")
    parser.add_argument("--tune", metavar="BUDGET", type=budget,
                        help=f"tune each model for so long first (default {TUNE}; with --quick, "
                             "and where an experiment divides a --total, none)")
    add_untuned(parser, "measure default schedules")
    add_within(parser, "measure each experiment that compares speeds for so long")
    parser.add_argument("--tvm-tuning", metavar="TIME", type=budget,
                        help="that TVM's tuner gets for each model")
    parser.add_argument("--only", metavar="N[,N…]", help="these experiments")
    parser.add_argument("--except", metavar="N[,N…]", dest="without",
                        help="all but these experiments")
    parser.add_argument("--list", action="store_true", help="print the commands, run nothing")
    return parse(parser, arguments)


def choose(only, without):
    """Returns the experiments' names: those that compare speeds first."""
    found = [*experiments.NAMES, *experiments.PROGRAMS]
    for text in (only, without):
        unknown = set((text or "").split(",")) - {""} - set(found)
        if unknown:
            raise ExperimentError(f"no experiment called {', '.join(sorted(unknown))}; there are "
                                  f"{', '.join(found)}", USAGE)
    left_out = (without or "").split(",")
    return [name for name in found
            if name not in left_out and (not only or name in only.split(","))]


def flags(options, known):
    """Returns the arguments of one experiment: of --quick, --untuned, --tune, --within and
    --tvm-tuning those that it knows. A program (one that compares no speeds) knows what its
    --help names."""
    # What divides a time of its own (--total) tunes in it, unless it is asked for more.
    alone = options.quick or options.untuned or "--total TIME" in known
    tune = options.tune or (None if alone else TUNE)
    wanted = [["--quick"]] if options.quick else []
    if options.untuned or (options.quick and not tune and not DATABASE.exists()):
        wanted.append(["--untuned"])
    elif tune:
        wanted.append(["--tune", tune])
    wanted += [[flag, value] for flag, value in (("--within", options.within),
                                                 ("--tvm-tuning", options.tvm_tuning)) if value]
    # A flag of that name that takes something else is another one.
    meant = {"--quick": "--quick", "--untuned": "--untuned", "--tune": "--tune BUDGET",
             "--within": "--within TIME", "--tvm-tuning": "--tvm-tuning TIME"}
    return [word for words in wanted for word in words
            if re.search(rf"(?<![\w-]){meant[words[0]]}(?![\w-])", known)]


def help_of(name):
    """Returns the text of an experiment's --help."""
    done = subprocess.run(command(name, ["--help"]), capture_output=True, text=True)
    return done.stdout


def command(name, arguments):
    return [sys.executable, "-m", "experiments.harness.cli", name, *arguments]


def clock(seconds):
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


def wrote_results(name, since):
    """Whether an experiment has written results since then (time.time())."""
    since -= 1  # a file system's clock is coarse
    return any(path.stat().st_mtime >= since for path in report.RESULTS.glob(f"{name}*.json")
               if not path.name.endswith(".partial.json"))


class State:
    """What earlier runs left: {name: {"settings", "code", "done", "seconds"}}."""

    def __init__(self, path):
        self.path = path
        try:
            self.runs = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            self.runs = {}

    def ran(self, name):
        """Whether it came to its end."""
        run = self.runs.get(name, {})
        return run.get("done", run.get("code") == 0)

    def is_done(self, name, settings):
        return self.ran(name) and self.runs[name].get("settings") == settings

    def note(self, name, settings, code, seconds, done=None):
        self.runs[name] = {"settings": settings, "code": code, "seconds": seconds,
                           "done": code == 0 if done is None else done}
        report.write_json(self.path, self.runs)

    def expected(self, names):
        """Returns the seconds that these will take, by what the same ones took before; others
        count as the mean of those. None where nothing is known."""
        known = [run["seconds"] for name, run in self.runs.items() if self.ran(name)]
        if not known:
            return None
        mean = sum(known) / len(known)
        return sum(self.runs[name]["seconds"] if self.ran(name) else mean for name in names)


def run_all(names, arguments, state, commit, resume, run):
    """Runs the experiments; returns {name: exit code}. run(name, arguments) → exit code."""
    codes = {}
    settings = {name: {"arguments": arguments[name], "commit": commit} for name in names}
    waiting = [name for name in names if not (resume and state.is_done(name, settings[name]))]
    for number, name in enumerate(waiting, 1):
        expected = state.expected(waiting[number - 1:])
        left = f", about {clock(expected)} left" if expected is not None else ""
        print(f"[{number}/{len(waiting)}] {name} {' '.join(arguments[name])}{left}",
              file=sys.stderr, flush=True)
        start, since = time.monotonic(), time.time()
        codes[name] = run(name, arguments[name])
        seconds = time.monotonic() - start
        missed = codes[name] == WRONG_RESULT and wrote_results(name, since)
        state.note(name, settings[name], codes[name], seconds, codes[name] == 0 or missed)
        if codes[name] in (INTERRUPTED, -2):
            raise KeyboardInterrupt
        ended = "done" if codes[name] == 0 else "done; not all of its bars are kept" if missed \
            else f"failed with {codes[name]}; going on"
        print(f"[{number}/{len(waiting)}] {name} {ended}, {clock(seconds)}", file=sys.stderr,
              flush=True)
    return codes


def execute(options):
    names = choose(options.only, options.without)
    known = {name: help_of(name) for name in names}
    arguments = {name: flags(options, known[name]) for name in names}
    if options.list:
        for name in names:
            print(" ".join(["experiments/run", name, *arguments[name]]))
        return 0

    def run(name, words):
        # An experiment that was interrupted itself has a part to go on from.
        part = any(report.RESULTS.glob(f"{name}*.partial.json"))
        more = ["--resume"] if options.resume and part and "--resume" in known[name] else []
        return subprocess.run(command(name, [*words, *more])).returncode

    codes = run_all(names, arguments, State(STATE), machine.provenance([])["commit"],
                    options.resume, run)
    failed = {name: code for name, code in codes.items() if code}
    print(f"{len(codes) - len(failed)} of {len(codes)} done and kept; experiments/report makes the "
          "page", file=sys.stderr)
    for name, code in failed.items():
        print(f"{name}: exit code {code}", file=sys.stderr)
    return FAILURE if failed else 0


def main(arguments):
    return exit_code(lambda: execute(parse_arguments(arguments)),
                     "interrupted; experiments/run all --resume goes on from here")
