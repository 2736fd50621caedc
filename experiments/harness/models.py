"""Gets every system its model: exports ONNX files, compiles nimble executables."""

import hashlib
import importlib.metadata
import shlex
import subprocess
import sys

from experiments.harness.errors import USAGE, ExperimentError
from experiments.harness.experiment import BUILD, ROOT, load

BIN = ROOT / "build" / "bin"
BUILD_COMMAND = "scripts/quickstart, or cmake --preset release && cmake --build --preset release"
QUOTED = 200  # bytes of a program's last words, where its error stands
EXPORT_PACKAGES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")


def folder(experiment):
    path = BUILD / experiment.name
    path.mkdir(parents=True, exist_ok=True)
    return path


def export(experiment):
    """Exports the ONNX files unless they were made from the same sources and versions.

    In a process of its own: exporters leave threads and gigabytes behind.
    """
    if experiment.export is None:
        return
    where = folder(experiment)
    digest = hashlib.sha256()
    for source in experiment.sources:
        digest.update(source.read_bytes())
    for package in EXPORT_PACKAGES:
        digest.update(f"{package} {importlib.metadata.version(package)}".encode())
    stamp = where / "export.sha256"
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return
    print(f"{experiment.name}: exporting the model to ONNX", file=sys.stderr)
    with open(where / "export.log", "wb") as log:
        done = subprocess.run(
            [sys.executable, "-m", "experiments.harness.models", experiment.name], cwd=ROOT,
            stdout=log, stderr=log)
    if done.returncode != 0:
        raise ExperimentError(f"{experiment.name}: the export to ONNX failed; see {log.name}")
    stamp.write_text(digest.hexdigest())


def trace_argument(experiment):
    """Returns what `nimble tune --trace` takes for this workload, or None.

    Where tuning may see some lengths only, their table is written first.
    """
    if experiment.tuning_histogram is None:
        return experiment.trace
    path = folder(experiment) / "tuning-lengths.tsv"
    rows = [f"{length}\t{count}\n" for length, count in experiment.tuning_histogram().items()]
    path.write_text("n\tcount\n" + "".join(rows))
    return f"{path.relative_to(ROOT)}:n"


def nimble_options(experiment, system):
    """Returns what `nimble compile` and `nimble tune` get beside the model."""
    return (*experiment.nimble_options, *experiment.system_options.get(system, ()))


def tune_command(experiment, system, model, database, budget):
    trace = trace_argument(experiment)
    return [str(BIN / "nimble"), "tune", model, "--db", str(database),
            *nimble_options(experiment, system), *(["--trace", trace] if trace else []),
            "--threads", ",".join(map(str, experiment.threads)), "--budget", budget]


def tune(experiment, options, only=None):
    """Tunes every model of nimble's, or that of one system, for options.tune, into
    options.database."""
    options.database.parent.mkdir(parents=True, exist_ok=True)
    for system, model in experiment.nimble_models(folder(experiment)).items():
        if only in (None, system):
            run_nimble(experiment, tune_command(
                experiment, system, model, options.database, options.tune), system)


def run_nimble(experiment, command, system="nimble"):
    """Runs a program for a system of nimble's, to which a failure is put down; the error quotes
    what was printed last, unless a terminal shows progress."""
    print(f"{experiment.name}: {shlex.join(command)}", file=sys.stderr, flush=True)
    quoted = not sys.stderr.isatty()
    with subprocess.Popen(command, cwd=ROOT, stdout=sys.stderr,
                          stderr=subprocess.PIPE if quoted else None) as process:
        last = b""
        while quoted and (piece := process.stderr.read1()):
            sys.stderr.write(piece.decode(errors="replace"))
            sys.stderr.flush()
            last = (last + piece)[-QUOTED:]
    if process.returncode != 0:
        words = " ".join(last.decode(errors="replace").split())
        words = f"{words} (status {process.returncode}); see" if quoted else "failed:"
        raise ExperimentError(f"{system}: {words} `{shlex.join(command)}`", system=system)


def compile_nimble(experiment, options, only=None):
    """Compiles what nimble runs, or one system; returns {system: executable}.

    options: the command line, of which database, untuned, nimble_file and resume are used.
    Compiles anew unless resuming, so that the figures belong to the compiler and the database of
    this moment.
    """
    if options.nimble_file is not None:
        if not options.nimble_file.exists():
            raise ExperimentError(f"--nimble-file {options.nimble_file}: no such file", USAGE)
        return {experiment.nimble: str(options.nimble_file.resolve())}
    program = BIN / "nimble"
    for needed in (program, ROOT / "build" / "lib" / "libnimble.so"):
        if not needed.exists():
            raise ExperimentError(f"{needed} is missing; build it with {BUILD_COMMAND} "
                                  "(or measure the peers alone: --no-nimble)")
    models = experiment.nimble_models(folder(experiment))
    if not options.untuned and not options.database.exists():
        tune = shlex.join(tune_command(experiment, experiment.nimble, models[experiment.nimble],
                                       options.database, "30m"))
        raise ExperimentError(f"{options.database}: no such tuning database; make it with "
                              f"`{tune}`, or with --tune 30m, or measure default schedules with "
                              "--untuned")
    executables = {}
    for system, model in models.items():
        if only not in (None, system):
            continue
        target = folder(experiment) / f"{system}.nimble"
        executables[system] = str(target)
        if options.resume and target.exists():
            continue
        command = [str(program), "compile", model, *nimble_options(experiment, system), "-o",
                   str(target)]
        if not options.untuned:
            command += ["--db", str(options.database)]
        run_nimble(experiment, command, system)
    return executables


if __name__ == "__main__":
    chosen = load(sys.argv[1])
    chosen.export(folder(chosen))
