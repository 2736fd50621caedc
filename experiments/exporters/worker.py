"""One worker: exports models, compiles the exports, and runs them against the modules themselves.

A process of its own, since exporters keep global state and may crash.
"""

import contextlib
import io
import json
import logging
import os
import pathlib
import subprocess
import time
import warnings

import numpy as np
import torch

from experiments.exporters.catalogue import TORCHSCRIPT
from experiments.exporters.compare import difference
from experiments.harness.batch import Compiler, CompilerDied, one_line
from experiments.harness.experiment import ROOT

SEED = 1
OPSET = 17  # of the exporter of TorchScript; the other one has its own newest
LONGEST = 400  # characters of a message


def export(entry, exporter, module, path):
    """Writes `path`; raises what PyTorch raises."""
    sizes = entry.example_sizes()
    inputs = entry.draw_inputs(np.random.default_rng(SEED), sizes)
    arguments = tuple(torch.from_numpy(np.asarray(a)) for a in inputs.values())
    axes = [{axis: d for axis, d in enumerate(i.dims) if isinstance(d, str)} for i in entry.inputs]
    translations = entry.translations() if entry.translations else None
    if exporter == TORCHSCRIPT:
        torch.onnx.export(module, arguments, path, dynamo=False, opset_version=OPSET,
                          input_names=list(inputs), dynamic_axes=dict(zip(inputs, axes)))
        return
    dims = {}
    for name, (low, high, *rest) in entry.sizes.items():
        step = rest[0] if rest else 1
        base = torch.export.Dim(f"{name}{step}" if rest else name, min=max(1, low // step),
                                max=high // step)
        dims[name] = step * base if rest else base
    shapes = tuple({axis: dims[d] for axis, d in named.items()} for named in axes)
    torch.onnx.export(module, arguments, path, dynamo=True, external_data=False, verbose=False,
                      input_names=list(inputs), dynamic_shapes=shapes,
                      custom_translation_table=translations)


def export_once(entry, path):
    """Writes a model's file by the exporter of TorchScript, with weights as the seed draws them,
    unless it is there."""
    if path.exists():
        return
    part = path.with_suffix(".part")
    with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        torch.manual_seed(SEED)
        export(entry, TORCHSCRIPT, entry.make(TORCHSCRIPT).eval(), str(part))
    part.rename(path)


def stir(module):
    """Gives parameters and statistics that begin as all zeros or ones values: they would hide an
    operation that is missing."""
    with torch.no_grad():
        for value in [*module.parameters(), *module.buffers()]:
            if value.is_floating_point() and len(value.unique()) == 1 < value.numel():
                value += torch.rand_like(value) * 0.3


def flat(results):
    """Returns the tensors of a module's result as arrays, in order."""
    if isinstance(results, torch.Tensor):
        return [results.numpy()]
    return [array for part in results for array in flat(part)]


def run_onnxruntime(path, inputs):
    """Returns what ONNX Runtime gives of the file; None where it refuses or fails."""
    import onnxruntime
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = {i.name for i in session.get_inputs()}
        return session.run(None, {k: v for k, v in inputs.items() if k in names})
    except Exception:  # its exceptions have no common base
        return None


def as_exported(path, inputs, got):
    """Whether ONNX Runtime gives of the file what nimble gives (None: neither gives anything).

    Then the file itself differs from the module, as exporters may warn: what they trace holds for
    the example's sizes only.
    """
    theirs = run_onnxruntime(path, inputs)
    if got is None or theirs is None:
        return got is None and theirs is None
    return not difference(got, theirs)[1]


def check(path):
    """Returns the operators that `nimble check` says are unsupported."""
    done = subprocess.run([str(ROOT / "build" / "bin" / "nimble-check"), path, "--format", "json"],
                          capture_output=True, text=True)
    rows = json.loads(done.stdout)["operators"] if done.stdout.strip() else []
    return sorted(row["op"] for row in rows if not row["supported"])


def run_shapes(entry, module, path, onnx_path, count, record):
    """Runs `count` drawn shapes; fills record's `equal`, `largest_error`, `status`, `message`."""
    from scripts import nimble_ctypes
    model = nimble_ctypes.Model(path)
    session = nimble_ctypes.Session(model, threads=1)
    accepted = {port.name for port in model.inputs}
    generator = np.random.default_rng(SEED + 1)
    record["shapes"] = []
    for _ in range(count):
        sizes = entry.draw_sizes(generator)
        inputs = entry.draw_inputs(generator, sizes)
        with torch.no_grad():
            wanted = flat(module(*(torch.from_numpy(np.array(a)) for a in inputs.values())))
        got, problem, error = None, "", np.inf
        try:
            results = session.run({k: v for k, v in inputs.items() if k in accepted})
            got = [np.array(a) for a in results.values()]
            error, problem = difference(got, wanted)
        except nimble_ctypes.NimbleError as failure:
            problem = one_line(failure).replace(onnx_path, "model").replace(path, "model")
        record["shapes"].append(", ".join(f"{name}={n}" for name, n in sizes.items()))
        if not problem:
            record["equal"] += 1
            record["largest_error"] = max(record["largest_error"], error)
            continue
        status = "exported wrongly" if as_exported(onnx_path, inputs, got) else "failed"
        if not record["status"] or status == "failed" != record["status"]:
            record["status"] = status
            record["message"] = f"at {record['shapes'][-1]}: {problem}"[:LONGEST]
    if record["equal"] == count:
        record["status"] = "equal"


def outcome(entry, exporter, shapes, folder, compiler):
    """Returns the record of a model and exporter; program.py says what its states mean."""
    record = {"model": entry.name, "group": entry.group, "exporter": exporter, "status": "",
              "equal": 0, "largest_error": 0.0, "message": ""}
    onnx_path, path = (str(folder / f"{entry.name}.{exporter}.{kind}")
                       for kind in ("onnx", "nimble"))
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            torch.manual_seed(SEED)
            module = entry.make(exporter).eval()
            stir(module)
            export(entry, exporter, module, onnx_path)
    except Exception as error:  # whatever an exporter throws is its answer
        while error.__cause__ is not None:  # PyTorch wraps the reason in advice
            error = error.__cause__
        record["status"] = "not exported"
        text = one_line(error).replace(f"{ROOT}/", "")
        record["message"] = f"{type(error).__name__}: {text}"[:LONGEST]
        return record
    try:
        record["unsupported"] = check(onnx_path)
        start = compiler.processor_seconds()
        report = compiler.compile(onnx_path, path)
        record["compile_seconds"] = round(compiler.processor_seconds() - start, 2)
        if report["status"] != "ok":
            sizes = entry.example_sizes()
            inputs = entry.draw_inputs(np.random.default_rng(SEED), sizes)
            record["status"] = ("exported wrongly" if as_exported(onnx_path, inputs, None)
                                else "not compiled")
            record["message"] = one_line(f"{report['problem']}; {report['remedy']}").replace(
                onnx_path, "model")[:LONGEST]
        else:
            run_shapes(entry, module, path, onnx_path, shapes, record)
    except CompilerDied as error:
        record["status"], record["message"] = "crashed", one_line(error)[:LONGEST]
    return record


def main(tasks, shapes, folder, pipe):
    """Answers each number of a task, a pair of entry and exporter, with its record."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # The exporters also write to the process's own outputs, from C++.
    with open(folder / "exporters.log", "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    compiler = Compiler(folder / "compiler.log", seconds=300, portable=True)
    while (number := pipe.recv()) is not None:
        start = time.monotonic()
        record = outcome(*tasks[number], shapes, folder, compiler)
        record["seconds"] = round(time.monotonic() - start, 1)
        pipe.send((number, record))
    compiler.close()
