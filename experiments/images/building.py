"""Gets the systems a network: its files of ONNX and weights, nimble's executables."""

import hashlib
import importlib.metadata
import json
import pathlib
import subprocess
import sys
import time
import types

from experiments.harness.errors import ExperimentError
from experiments.harness.experiment import BUILD, ROOT
from experiments.images import networks, tables
from experiments.images.networks import NETWORKS

EXPORT_PACKAGES = ("torch", "onnx", "numpy")
NO_SOURCES = ("arguments.py", "building.py", "kernels.py", "pace.py", "program.py", "tables.py",
              "worker.py")
FOLDER = BUILD / "images"


def export_digest():
    """Returns what an exported network depends on."""
    found = hashlib.sha256()
    used = [*pathlib.Path(__file__).parent.glob("*.py"),
            ROOT / "experiments" / "exporters" / "models" / "images.py",
            ROOT / "experiments" / "exporters" / "worker.py",
            ROOT / "experiments" / "memory_study" / "models.py"]
    for path in sorted(path for path in used if path.name not in NO_SOURCES):
        found.update(path.read_bytes())
    for package in EXPORT_PACKAGES:
        found.update(f"{package} {importlib.metadata.version(package)}".encode())
    return found.hexdigest()


def export(name):
    """Exports a network unless it was made from the same sources; returns {"output", "flops"}."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    stamp, wanted = FOLDER / f"{name}.sha256", export_digest()
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"images: exporting {name}", file=sys.stderr, flush=True)
        with open(FOLDER / f"{name}.log", "wb") as log:
            done = subprocess.run([sys.executable, "-m", "experiments.images.export", name,
                                   str(FOLDER)], cwd=ROOT, stdout=log, stderr=log)
        if done.returncode != 0:
            raise ExperimentError(f"{name}: the export failed; see {log.name}")
        stamp.write_text(wanted)
    return json.loads((FOLDER / f"{name}.json").read_text())


def compile_network(file, output, database, more=()):
    """more: further arguments of `nimble compile`."""
    from experiments.studies import programs
    return programs.call_json("images", [
        "nimble-compile", file, "-o", output, "--portable=off", *more,
        *(["--db", database] if database else [])])


def tune_command(name, database, threads, budget, more=(), file=None):
    """more: further arguments of `nimble tune`; file: of a network that is not the exported one.
    """
    from experiments.studies import programs
    trace = (["--trace", networks.write_trace(FOLDER / "tuned-sizes.tsv")]
             if NETWORKS[name].any_size else [])
    return [str(programs.BIN / "nimble-tune"), str(file or FOLDER / f"{name}.onnx"), "--db",
            str(database), "--threads", str(threads), "--budget", budget, *trace, *more]


def build_tuned(name, output, options, pace, more=(), file=None):
    """Tunes where asked for or needed, and compiles; returns what tuning says. Where the time was too
    short for a table, default schedules are measured, as that says. pace: the run's (pace.py); more,
    file: as of tune_command."""
    from experiments.harness import models
    from experiments.roofline.program import tuning_of, without_tables
    source = file or FOLDER / f"{name}.onnx"
    database, threads = options.database, [options.threads]

    def compile_tuned():
        return compile_network(source, output, database, more)

    def tune(budget):
        database.parent.mkdir(parents=True, exist_ok=True)
        models.run_nimble(types.SimpleNamespace(name="images"),
                          tune_command(name, database, options.threads, budget, more, file))
    if options.tune:
        begin = time.monotonic()
        tune(options.tune)
        pace.exempt(time.monotonic() - begin)
    found = compile_tuned() if database.exists() else None
    if without_tables(found, threads) and not options.tune:
        tune(f"{pace.tuning_seconds()}s")
        found = compile_tuned()
    if without_tables(found, threads):
        print(f"images: {name}: after tuning {database} has no table of a convolution or product for "
              f"{options.threads} threads; going on with default schedules, for tables give it "
              "longer: --tune 30m", file=sys.stderr, flush=True)
    return tuning_of(found)


def build(name, options, pace):
    """Tunes where asked for or needed, and compiles; returns ({system: executable}, tuning)."""
    files, source = {tables.MAIN: FOLDER / f"{name}.nimble"}, FOLDER / f"{name}.onnx"
    if options.untuned:
        compile_network(source, files[tables.MAIN], None)
        return files, None
    files[tables.DEFAULT] = FOLDER / f"{name}-default.nimble"
    compile_network(source, files[tables.DEFAULT], None)
    return files, build_tuned(name, files[tables.MAIN], options, pace)


def build_winograd(name, options, pace):
    """Returns {system: executable} by Winograd's tiles of each size, tuned if nimble's own is."""
    files = {}
    for system, tile in tables.WINOGRAD.items():
        files[system] = FOLDER / f"{name}-winograd-{tile}.nimble"
        more = ("--winograd", str(tile))
        if options.untuned:
            compile_network(FOLDER / f"{name}.onnx", files[system], None, more)
        else:
            build_tuned(name, files[system], options, pace, more)
    return files
