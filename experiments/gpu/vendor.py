"""NVIDIA's libraries beside nimble's kernels, of `scripts/gpu-check`: each kernel is compiled twice,
as nimble's own and as the library's routine (`--knobs vendor={}`), and both take turns on the GPU.
"""

import glob
import json
import os
import statistics
import sys

import numpy as np

from experiments.gpu import candidates
from experiments.harness import batch

ROUNDS, CALLS, WARM = 5, 20, 3
OWN, VENDOR = "own", "vendor"
KNOBS = {OWN: None, VENDOR: "vendor={}"}
LIBRARIES = {"NIMBLE_CUBLASLT": "libcublasLt.so.1[23]", "NIMBLE_CUDNN": "libcudnn.so.9"}


def batched(heads=12, width=64):
    """Scores of an attention: a product for each head, one side transposed."""
    shape = f"({heads}, n, {width}), f32"
    lines = ["let %p = matmul(%q, %k) {transpose_b = true};", "let %y = mul(%p, 0.125f32);"]
    return candidates.Kernel(
        f"scores-{heads}x{width}", "_matmul",
        candidates.program({"q": shape, "k": shape}, lines, {"y": "%y"}),
        lambda n: {"q": candidates.draw(1, heads, n, width),
                   "k": candidates.draw(2, heads, n, width)})


def kernels():
    products = [(768, 2304, ""), (768, 3072, "gelu_tanh"), (768, 3072, "relu"),
                (3072, 768, "residual")]
    found = [candidates.product(k, n, follow, precision)
             for precision in candidates.PRECISIONS for k, n, follow in products]
    found += [batched(), candidates.convolution(64, 64, 3), candidates.convolution(256, 64, 1),
              candidates.convolution(192, 192, 3, groups=192)]
    return {kernel.name: kernel for kernel in found}


# ------------------------------------------------------------------ packing

def pack(folder, work, compiler):
    """Compiles both builds of each kernel; `compiler` is a batch.Compiler."""
    out = folder / "vendor"
    out.mkdir(parents=True, exist_ok=True)
    packed = []
    for name, kernel in kernels().items():
        source = work / f"vendor-{name}.nir"
        source.write_text(kernel.text)
        for build, knobs in KNOBS.items():
            try:
                report = compiler.compile(source, out / f"{name}-{build}.nimble",
                                          *([knobs] if knobs else []))
            except batch.CompilerDied as died:
                report = {"status": "crashed", "problem": str(died)}
            if report["status"] != "ok":
                print(f"gpu-check: {name}, {build}: {report}", file=sys.stderr)
                break
        else:
            packed.append(name)
    (folder / "vendor.json").write_text(json.dumps(packed))
    print(f"gpu-check: {len(packed)} of {len(kernels())} kernels beside a vendor's routine",
          file=sys.stderr)


# ------------------------------------------------------------------ running

def find_libraries(environment, paths):
    """Names the wheels' libraries to nimble where the environment names none: they lie in folders
    of Python's packages, where the system does not look."""
    for variable, pattern in LIBRARIES.items():
        if environment.get(variable):
            continue
        found = [file for path in paths
                 for file in sorted(glob.glob(os.path.join(path, "nvidia", "*", "lib", pattern)))]
        if found:
            environment[variable] = found[-1]


def times_of(profile, ending):
    """({implementation: calls}, the mean time of a call in ns) of the kernel in a profile."""
    rows = [row for row in profile["kernels"] if row["name"].endswith(ending)]
    calls = {}
    for row in rows:
        calls[row["implementation"]] = calls.get(row["implementation"], 0) + row["count"]
    count = sum(calls.values())
    return calls, sum(row["total_ns"] for row in rows) / count if count else None


def routine_of(calls):
    """The routine that ran, of `times_of`; "" where any call was ours."""
    name = next(iter(calls)) if len(calls) == 1 else ""
    return name if f"NIMBLE_{name.partition('.')[0].upper()}" in LIBRARIES else ""


def poisoned(inputs):
    """The same with one NaN among what is multiplied."""
    name = "x" if "x" in inputs else "q"
    array = inputs[name].copy()
    array.flat[0] = np.nan
    return {**inputs, name: array}


def same_nans(found, wanted):
    return all(np.array_equal(np.isnan(found[name]), np.isnan(array))
               for name, array in wanted.items())


def compare(kernel, folder, nimble, error_of):
    """Returns a row for each size; `error_of` compares two arrays."""
    sessions = {build: nimble.Session(nimble.Model(folder / "vendor" /
                                                   f"{kernel.name}-{build}.nimble"), 1)
                for build in KNOBS}
    rows = []
    for size in kernel.sizes:
        inputs = kernel.inputs(size)
        calls = {build: session.bind(inputs) for build, session in sessions.items()}
        for call in calls.values():
            for _ in range(WARM):
                call.run()
        outputs = {build: call.outputs() for build, call in calls.items()}
        row = {"kernel": kernel.name, "size": size,
               "error": max(error_of(outputs[VENDOR][name], array)
                            for name, array in outputs[OWN].items())}
        # What is no number compares with nothing; behind a ReLU it may be lost.
        strange = {build: session.bind(poisoned(inputs)) for build, session in sessions.items()}
        for call in strange.values():
            call.run()
        row["nans"] = same_nans(strange[VENDOR].outputs(), strange[OWN].outputs())
        row["right"] = bool(row["error"] <= kernel.tolerance) and row["nans"]
        times = {build: [] for build in KNOBS}
        for _ in range(ROUNDS):
            for build, session in sessions.items():
                session.set_profiling(True)
                for _ in range(CALLS):
                    calls[build].run()
                ran, ns = times_of(session.profile(), kernel.kernel)
                times[build].append(ns)
                if build == VENDOR:
                    row["routine"] = routine_of(ran)
                session.set_profiling(False)
        row.update({f"{build}_ns": statistics.median(ns) for build, ns in times.items()})
        rows.append(row)
    return rows


def run(folder, nimble, error_of, in_time, put):
    """Runs what is packed, kernel by kernel; puts what is known after each."""
    names = json.loads((folder / "vendor.json").read_text())
    known, rows = kernels(), []
    for name in names:
        if not in_time():
            put({"packed": len(names), "rows": rows, "left_out": names[names.index(name):]})
            return
        try:
            rows += compare(known[name], folder, nimble, error_of)
        except Exception as problem:  # noqa: BLE001
            rows.append({"kernel": name, "problem": f"{type(problem).__name__}: {problem}"[:300]})
        put({"packed": len(names), "rows": rows})


def is_wrong(found):
    return any(row.get("right") is False for row in found.get("rows", []))


def is_whole(found):
    """Whether there are sizes, and each was compared with a library's routine."""
    rows = found.get("rows", [])
    return bool(rows) and not found.get("left_out") and all(row.get("routine") for row in rows)


def lines(found):
    out = ["## NVIDIA's libraries", "", "The kernel's own time by the GPU's clock, medians.", "",
           "| kernel | size | routine | nimble us | its us | its / nimble | apart |",
           "| --- | --- | --- | --- | --- | --- | --- |"]
    for row in found["rows"]:
        if "problem" in row:
            out.append(f"| {row['kernel']} | | {row['problem']} | | | | |")
            continue
        out.append(f"| {row['kernel']} | {row['size']} | {row['routine'] or 'none: ours ran'} | "
                   f"{row['own_ns'] / 1000:.1f} | {row['vendor_ns'] / 1000:.1f} | "
                   f"{row['vendor_ns'] / row['own_ns']:.2f} | {row['error']:.1e}"
                   f"{'' if row['right'] else ' WRONG'}"
                   f"{'' if row['nans'] else ' (NaN)'} |")
    if found.get("left_out"):
        out += ["", f"No time was left for {', '.join(found['left_out'])}."]
    return [*out, ""]
