"""`scripts/gpu-check pack`: compiles what `scripts/gpu-check run` runs on a machine with a GPU.

That machine needs a driver, Python with numpy, and nothing of this one but the checkout and the
folder written here: the runtime's library with what it links, compiled models whose drawn weights
are left out (seeded.py), ONNX's own tests of operators, compiled, with their data, single kernels
in many configurations (candidates.py), and as NVIDIA's libraries compute them (vendor.py), and a
tuning campaign with the worker that measures it (tuning.py).
"""

import argparse
import json
import os
import pathlib
import shutil
import sys

import numpy as np

from experiments.gpu import candidates, models, seeded, tuning, vendor
from experiments.harness import batch
from experiments.harness.errors import exit_code
from experiments.harness.experiment import ROOT

# Not every type is a GPU's; what is not runs on the CPU there, which other tests look at.
TYPES = ("float32", "float16", "int64", "int32", "bool", "uint8", "int8")


def add_library(folder):
    """Copies libnimble.so and the libraries that it links."""
    library = ROOT / "build" / "lib" / "libnimble.so"
    for name, path in tuning.libraries_of(library).items():
        shutil.copy(path, folder / name)
    shutil.copy(library, folder / "libnimble.so")


def compile_file(source, output, target, host, options):
    tuning.run_program("compile", source, "-o", output, "--target", f"{target},{host}",
                       "--portable", "off", *options)


def pack_models(folder, work, chosen, target, host):
    for name in chosen:
        model = models.MODELS[name]
        print(f"gpu-check: compiling {name}", file=sys.stderr, flush=True)
        compiled = work / f"{name}.nimble"
        compile_file(model.source(work), compiled, target, host, model.options)
        size = seeded.save(folder / f"{name}.seeded", compiled.read_bytes(), model.weights())
        print(f"gpu-check: {name}: {compiled.stat().st_size >> 10} KiB, packed {size >> 10} KiB",
              file=sys.stderr, flush=True)


def is_wanted(case):
    if case.suite not in ("node", "simple", "pytorch-operator") or case.drawn:
        return False
    arrays = [value for inputs, outputs in case.data_sets for value in (*inputs, *outputs)]
    return all(isinstance(a, np.ndarray) and str(a.dtype) in TYPES for a in arrays)


def pack_cases(folder, work, most, target, host):
    """Compiles operators' tests, spread over all of them, and keeps their data."""
    from experiments.onnx_conformance import cases, worker
    found = [case for case in cases.collect() if is_wanted(case)]
    step = max(1, len(found) // most)
    out = folder / "operators"
    out.mkdir(exist_ok=True)
    options = ["--target", f"{target},{host}"]
    compiler = batch.Compiler(work / "operators.log", seconds=120, options=options)
    kept, refused = [], []
    source = work / "case.onnx"
    try:
        for case in found[::step]:
            path, fixed = out / f"{case.name}.nimble", case.model.__class__()
            fixed.CopyFrom(case.model)
            try:
                while True:
                    source.write_bytes(fixed.SerializeToString())
                    report = compiler.compile(source, path)
                    if report["status"] != "unsupported" or \
                            worker.fix_input(fixed, case, report["problem"]) is None:
                        break
            except batch.CompilerDied as died:
                report = {"status": "crashed", "problem": str(died)}
            if report["status"] != "ok":
                refused.append((case.name, batch.one_line(report["problem"])))
                continue
            constants = {t.name for t in fixed.graph.initializer}
            data = {}
            for number, (inputs, outputs) in enumerate(case.data_sets):
                for value, array in zip(fixed.graph.input, inputs):
                    if value.name not in constants:
                        data[f"{number}|in|{value.name}"] = array
                for position, array in enumerate(outputs):
                    data[f"{number}|out|{position}"] = array
            np.savez_compressed(out / f"{case.name}.npz", **data)
            kept.append({"name": case.name, "rtol": case.rtol, "atol": case.atol})
    finally:
        compiler.close()
    (folder / "operators.json").write_text(json.dumps({"cases": kept, "refused": refused}))
    print(f"gpu-check: {len(kept)} operators' tests, {len(refused)} refused", file=sys.stderr)
    for name, why in refused[:20]:
        print(f"gpu-check:   {name}: {why}", file=sys.stderr)


def knobs_of(source, target, host, ending):
    """Returns (template, default, choices of each knob) of the kernel in a program."""
    done = tuning.run_program("check", source, "--format", "json", "--target", f"{target},{host}")
    rows = json.loads(done.stdout)["workloads"]
    # A kernel's name ends in the operator that its group is made around.
    row = next(row for row in rows if ending.lstrip("_") in row["source"].split("+"))
    return row["template"], row["default"], row["knobs"]


def pack_candidates(folder, work, most, target, host):
    """Compiles each kernel's default configuration, the fixed ones and `most` that are drawn, in
    turns, so that what there is when it ends early is of all."""
    out = folder / "candidates"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    options = ["--target", f"{target},{host}"]
    compiler = batch.Compiler(work / "candidates.log", seconds=120, options=options)
    packed, refused, waiting = [], 0, {}
    for name, kernel in candidates.kernels().items():
        source = work / f"candidate-{name}.nir"
        source.write_text(kernel.text)
        template, default, knobs = knobs_of(source, target, host, kernel.kernel)
        waiting[name] = (source, template, default, candidates.in_order(default, knobs, name))
    tries, counts = dict.fromkeys(waiting, 0), dict.fromkeys(waiting, 0)  # of the drawn ones
    try:
        while waiting:
            for name in list(waiting):
                source, template, default, configs = waiting[name]
                report = {}
                while report.get("status") != "ok":
                    config, drawn = next(configs, (None, True))
                    tries[name] += drawn
                    if config is None or tries[name] > 100 * most:
                        del waiting[name]
                        break
                    path = out / f"{len(packed):04}.nimble"
                    try:
                        report = compiler.compile(
                            source, path, f"{template}={json.dumps(config)}")
                    except batch.CompilerDied as died:
                        report = {"status": "crashed", "problem": str(died)}
                    if report["status"] not in ("ok", "invalid argument"):
                        print(f"gpu-check: {name}: {config}: {report}", file=sys.stderr)
                    refused += report["status"] != "ok"
                else:
                    packed.append({"kernel": name, "file": path.name, "config": config,
                                   "default": config == default})
                    (folder / "candidates.json").write_text(json.dumps(packed))
                    counts[name] += drawn
                    if counts[name] >= most:
                        del waiting[name]
    finally:
        compiler.close()
    print(f"gpu-check: {len(packed)} candidates of {len(counts)} kernels; {refused} others cannot "
          "be made", file=sys.stderr)


def pack_vendor(folder, work, target, host):
    compiler = batch.Compiler(work / "vendor.log", seconds=120,
                              options=["--target", f"{target},{host}"])
    try:
        vendor.pack(folder, work, compiler)
    finally:
        compiler.close()


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="scripts/gpu-check pack", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path,
                        default=ROOT / "build" / "gpu-check")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--host-target", default="x86-64-v3", metavar="TARGET",
                        help="of the kernels that run on the CPU (default: %(default)s)")
    parser.add_argument("--models", default=",".join(models.MODELS), metavar="N[,N…]",
                        help="(default: all) of " + ", ".join(models.MODELS))
    parser.add_argument("--operators", type=int, default=300, metavar="N",
                        help="of ONNX's tests of operators, at most (default: %(default)s)")
    parser.add_argument("--candidates", type=int, default=24, metavar="N",
                        help="drawn configurations of each kernel, beside its default one and the "
                             "fixed ones (default: %(default)s; 0: no candidates)")
    parser.add_argument("--tuning", type=int, default=16, metavar="N",
                        help="drawn candidates of each of BERT-base's kernels in the tuning "
                             "campaign (default: %(default)s; 0: no campaign)")
    parser.add_argument("--no-vendor", action="store_true",
                        help="leave out the kernels that NVIDIA's libraries compute, too")
    options = parser.parse_args(arguments)
    chosen = [name for name in options.models.split(",") if name]
    for name in chosen:
        if name not in models.MODELS:
            parser.error(f"there is no model {name}")
    work = ROOT / "build" / "gpu-check-work"
    work.mkdir(parents=True, exist_ok=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    add_library(options.folder)
    pack_models(options.folder, work, chosen, options.target, options.host_target)
    if options.operators:
        pack_cases(options.folder, work, options.operators, options.target, options.host_target)
    if options.candidates:
        pack_candidates(options.folder, work, options.candidates, options.target,
                        options.host_target)
    if options.tuning:
        tuning.pack(options.folder, work, models.MODELS["bert-base"], options.tuning,
                    options.target)
    if not options.no_vendor:
        pack_vendor(options.folder, work, options.target, options.host_target)
    size = sum(f.stat().st_size for f in options.folder.rglob("*") if f.is_file())
    print(f"gpu-check: {options.folder}: {size >> 20} MiB", file=sys.stderr)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(exit_code(main, program="gpu-check"))
