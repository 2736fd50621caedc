"""Running nimble's programs for a study."""

import json
import os
import pathlib
import re
import subprocess
import sys

from experiments.harness.errors import ExperimentError
from experiments.harness.experiment import ROOT

BIN = ROOT / "build" / "bin"


def need(*names):
    for name in names:
        if not (BIN / name).exists():
            target = name if name.endswith("-bench") else "nimble-programs"
            raise ExperimentError(f"{BIN / name} is missing; build it with scripts/build release "
                                  f"{target}")


def call(study, command):
    """Runs a program, the first word of which is its name under build/bin; returns what it
    prints."""
    words = [str(BIN / command[0]), *map(str, command[1:])]
    print(f"{study}: {' '.join(words)}", file=sys.stderr, flush=True)
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise ExperimentError(f"{pathlib.Path(words[0]).name} ended with {done.returncode}: "
                              f"{done.stderr.strip()[-400:]}")
    return done.stdout


def call_json(study, command):
    return json.loads(call(study, [*command, "--format", "json"]))


def compile_model(study, model, output, database, *options):
    """Compiles with the records of a database, without one (None) by default schedules; returns the
    report."""
    return call_json(study, ["nimble-compile", model, "-o", output, "--portable=off", *options,
                             *(["--db", database] if database else [])])


def compiled(study, model, output, database, *options):
    """The same; returns the executable."""
    compile_model(study, model, output, database, *options)
    return output


def probe(module, request, **environment):
    """Runs a module of Python, which gets the request, a dict, and prints what it finds, both as
    JSON; the request's "file" is what it looks at."""
    done = subprocess.run([sys.executable, "-m", module, json.dumps(request)],
                          capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT), **environment})
    if done.returncode != 0:
        raise ExperimentError(f"{request['file']}: the run failed: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout)


def measure_peaks(study, threads, seconds):
    """Returns what `nimble doctor --measure` finds at these numbers of threads, so long for each
    figure."""
    return call_json(study, ["nimble-doctor", "--measure", "--threads",
                             ",".join(map(str, threads)), "--seconds", seconds])["measured"]


def flags(program):
    """Returns the options that a program's --help names."""
    done = subprocess.run([str(BIN / program), "--help"], capture_output=True, text=True)
    return set(re.findall(r"--[a-z][a-z-]*", done.stdout))


def fresh(path):
    """Removes a database that an earlier run left, with what lies beside it; returns the path."""
    for old in path.parent.glob(f"{path.name}*"):
        old.unlink()
    return path
