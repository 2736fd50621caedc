"""`scripts/gpu-check run`: what `pack` has packed, on a machine with an NVIDIA GPU.

Parts, in this order; each goes on after failures, and what is done is on disk at once:

    machine    GPU, driver, PyTorch
    operators  ONNX's tests of operators, against the data that come with them
    tuning     a short tuning campaign by nimble's worker over packed candidates; its records are
               gpu-tuning.db, which `nimble db import` merges into a database
    models     whole models against PyTorch's f64, and their times beside PyTorch's eager and
               compiled (CUDA graphs) ones in turns: inputs in the host's memory, results too
    profile    where nimble's time goes, by kernel
    candidates single kernels in many configurations: each against the default one's result, and
               the time of each beside its
    vendor     products and convolutions by NVIDIA's libraries, beside nimble's own

Writes gpu.json and gpu.md. Exit codes: 0 all is right, 3 a wrong result, 1 failure, or something
that was asked for has not run.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import time
import traceback

import numpy as np

from experiments.gpu import candidates, models, seeded, tables, tuning, vendor
from experiments.harness import batch

PARTS = ("machine", "operators", "tuning", "models", "profile", "candidates", "vendor")
WARM, ROUNDS, RUNS = 3, 7, 15
TUNING_SECONDS = 60  # that the campaign takes at most: what is claimed first is of all kernels
CANDIDATE_WARM, CANDIDATE_CALLS = 2, 40  # runs; calls of the kernel, at least, in all timed runs


class Results:
    """What is known so far, on disk after each change."""

    def __init__(self, folder):
        self.folder = folder
        self.data = {}
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, key, value):
        self.data[key] = value
        (self.folder / "gpu.json").write_text(json.dumps(self.data, indent=1))
        (self.folder / "gpu.md").write_text(tables.page(self.data))


def say(text):
    print(f"gpu-check: {text}", file=sys.stderr, flush=True)


def machine():
    found = {}
    try:
        found["gpu"] = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
            capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        found["gpu"] = f"nvidia-smi: {error}"
    # In a process of its own: one that has used the GPU can't fork processes that do.
    ask = "import torch; print(torch.__version__, *torch.cuda.get_device_capability())"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    found["torch"] = (done.stdout.strip() or f"none: {done.stderr.strip().splitlines()[-1:]}")
    return found


# ------------------------------------------------------------------ operators

def run_case(folder, case, nimble):
    """Returns "" or what is wrong with one operator's test."""
    data = np.load(folder / "operators" / f"{case['name']}.npz")
    session = nimble.Session(nimble.Model(folder / "operators" / f"{case['name']}.nimble"), 1)
    sets = {}
    for key, array in data.items():
        number, side, name = key.split("|", 2)
        sets.setdefault(number, {"in": {}, "out": {}})[side][name] = array
    for one in sets.values():
        for _ in range(2):  # the second run finds what the first one left
            results = list(session.run(one["in"]).values())
        for position, wanted in one["out"].items():
            result = results[int(position)]
            if result.shape != wanted.shape or result.dtype != wanted.dtype:
                return (f"{result.dtype} {result.shape} instead of {wanted.dtype} {wanted.shape}")
            np.testing.assert_allclose(result, wanted, rtol=case["rtol"], atol=case["atol"])
    return ""


def operator_process(folder, case, pipe):
    from experiments.peers.nimble import nimble_ctypes
    try:
        wrong = run_case(folder, case, nimble_ctypes)
    except Exception as error:  # noqa: BLE001  (whatever it is, the others go on)
        wrong = f"{type(error).__name__}: {batch.one_line(error)[:400]}"
    pipe.send(wrong)


def operator_worker(folder, cases, pipe):
    """A process for each case: a lost device would fail all that follow in the same one."""
    context = multiprocessing.get_context("fork")
    while (number := pipe.recv()) is not None:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=operator_process, args=(folder, cases[number], theirs))
        process.start()
        theirs.close()
        try:
            wrong = ours.recv()
        except EOFError:
            process.join()
            wrong = f"the run ended with {process.exitcode}"
        process.join()
        pipe.send((number, wrong))


def operators(folder, jobs):
    cases = json.loads((folder / "operators.json").read_text())["cases"]
    outcomes = batch.run_all(len(cases), operator_worker, lambda _: (folder, cases), jobs, 60,
                             lambda number, message, seconds: [message], lambda _: None)
    wrong = {cases[n]["name"]: outcome[0] for n, outcome in sorted(outcomes.items()) if outcome[0]}
    return {"cases": len(cases), "wrong": wrong}


# ------------------------------------------------------------------ models

def median_us(call, runs):
    """The median of single calls; each ends when its result is in the host's memory."""
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


class Nimble:
    def __init__(self, path):
        from experiments.peers.nimble import nimble_ctypes
        self.session = nimble_ctypes.Session(nimble_ctypes.Model(path), 1)

    def bind(self, inputs):
        if isinstance(inputs, dict):
            call = self.session.bind(inputs)
            return call.run, lambda name: call.outputs()[name].copy()
        from experiments.tree_lstm.experiment import make_value
        call = self.session.bind_values({"tree": make_value(self.session.model, inputs)})
        return call.run, lambda name: call.outputs()[name].array().copy()


def allow_tf32(torch, allowed):
    """f32 is f32 on both sides, and TF32 on where nimble's products take it. Until the next call:
    the setting is the process's."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


class Torch:
    """PyTorch on the GPU; `compiled` by torch.compile with CUDA graphs, of the sizes at hand."""

    def __init__(self, model, compiled):
        import torch
        self.torch = torch
        allow_tf32(torch, model.precision == "tf32")
        module = model.module().cuda()
        if model.precision == "bf16":
            module = module.to(torch.bfloat16)
        self.module = module
        self.dtype = torch.bfloat16 if model.precision == "bf16" else torch.float32
        if compiled:
            torch._dynamo.reset()
            self.module = torch.compile(module, mode="reduce-overhead", dynamic=False)

    def bind(self, inputs):
        torch = self.torch
        given = {name: torch.from_numpy(a).pin_memory() for name, a in inputs.items()}
        kept = {}

        def run():
            with torch.inference_mode():
                moved = {name: t.cuda(non_blocking=True) for name, t in given.items()}
                moved = {name: t.to(self.dtype) if t.is_floating_point() else t
                         for name, t in moved.items()}
                kept["result"] = self.module(**moved).float().cpu()
        return run, lambda _: kept["result"].numpy()


class TorchTrees:
    """PyTorch's Tree-LSTM on the GPU, by recursion or with the nodes of a height in one product."""

    def __init__(self, model, by_level):
        import torch
        self.torch = torch
        allow_tf32(torch, False)
        self.module = model.module(by_level).cuda()

    def bind(self, tree):
        torch = self.torch
        given, kept = self.module.prepare(tree), {}

        def run():
            with torch.inference_mode(), torch.device("cuda"):
                kept["result"] = self.module(on_gpu(given)).cpu()
        return run, lambda _: kept["result"].numpy()


def on_gpu(value):
    """A tree of PyTorch's tensors with those on the GPU."""
    if hasattr(value, "cuda"):
        return value.cuda()
    if isinstance(value, tuple):
        moved = [on_gpu(v) for v in value]
        return type(value)(*moved) if hasattr(value, "_fields") else tuple(moved)
    return value


def reference(model, inputs):
    """The result in f64, by PyTorch: of trees on the CPU, else on the GPU."""
    import torch
    if model.trees:
        module = model.module(True).double()
        parents, words = module.prepare(inputs)
        with torch.inference_mode():
            return module((parents, words.double())).numpy()
    module = model.module().double().cuda()
    with torch.inference_mode():
        given = {n: torch.from_numpy(a).cuda() for n, a in inputs.items()}
        given = {n: t.double() if t.is_floating_point() else t for n, t in given.items()}
        return module(**given).cpu().numpy()


def run_model(model, path, deadline, compiles, results):
    """Fills `results` (a dict that is already in the record) case by case."""
    cases = model.cases()
    results["cases"] = {}
    wanted = {}
    systems = {"nimble": Nimble(path)}
    for name, inputs in cases.items():
        run, output = systems["nimble"].bind(inputs)
        begin = time.perf_counter()
        run()
        first = (time.perf_counter() - begin) * 1e6
        case = results["cases"][name] = {"first_us": first}
        wanted[name] = reference(model, inputs)
        case["error"] = models.error(output(model.output), wanted[name])
        case["right"] = case["error"] <= model.tolerance
    peer = TorchTrees if model.trees else Torch
    for name, compiled in (("eager", False), ("by level" if model.trees else "compiled", True)):
        if time.monotonic() > deadline or name == "compiled" and not compiles:
            results.setdefault("left_out", []).append(name)
            continue
        try:
            systems[name] = peer(model, compiled)
            # Whatever compiles does so here, at each size.
            for inputs in cases.values():
                run, _ = systems[name].bind(inputs)
                for _ in range(WARM + 1):
                    run()
                if time.monotonic() > deadline:
                    raise TimeoutError("no time left")
        except Exception as error:  # noqa: BLE001
            systems.pop(name, None)
            results.setdefault("failed", {})[name] = batch.one_line(error)[:300]
    for name, inputs in cases.items():
        case = results["cases"][name]
        case["us"] = {system: [] for system in systems}
        bound = {system: runner.bind(inputs) for system, runner in systems.items()}
        for run, _ in bound.values():
            for _ in range(WARM):
                run()
        for _ in range(ROUNDS):
            for system, (run, _) in bound.items():
                case["us"][system].append(median_us(run, RUNS))
        # What runs later is started otherwise, as CUDA graphs.
        last = models.error(bound["nimble"][1](model.output), wanted[name])
        case["error"] = max(case["error"], last, key=lambda e: (e != e, e))  # no number is worst
        case["right"] = case["right"] and last <= model.tolerance
        medians = {system: statistics.median(v) for system, v in case["us"].items()}
        peers = [v for system, v in medians.items() if system != "nimble"]
        if peers:
            case["ratio"] = min(peers) / medians["nimble"]
        case["first_ratio"] = case["first_us"] / medians["nimble"]


def profile(model, path):
    """Where the time goes at the middle case."""
    runner = Nimble(path)
    cases = list(model.cases().items())
    name, inputs = cases[len(cases) // 2]
    run, _ = runner.bind(inputs)
    for _ in range(WARM):
        run()
    runner.session.set_profiling(True)
    for _ in range(20):
        run()
    return {"case": name, "profile": runner.session.profile()}


# ------------------------------------------------------------------ candidates

def run_candidate(folder, row, kernel, inputs, wanted, nimble):
    """Returns a candidate's ns by size; `wanted` has the default's results by size, once known."""
    session = nimble.Session(nimble.Model(folder / "candidates" / row["file"]), 1)
    times = {}
    for size, arrays in inputs.items():
        call = session.bind(arrays)
        session.set_profiling(True)
        for _ in range(CANDIDATE_WARM):
            call.run()
        calls = sum(r["count"] for r in session.profile()["kernels"]
                    if r["name"].endswith(kernel.kernel))
        session.set_profiling(True)
        for _ in range(max(2, -(-CANDIDATE_CALLS * CANDIDATE_WARM // max(1, calls)))):
            call.run()
        times[size] = candidates.kernel_ns(session.profile(), kernel.kernel, row["config"])
        if times[size] is None:
            raise RuntimeError("the profile has no such kernel")
        results = {name: array.copy() for name, array in call.outputs().items()}
        for name, array in results.items():
            error = models.error(array, wanted.setdefault(size, {}).setdefault(name, array))
            if not error <= kernel.tolerance:  # not a number neither
                raise ArithmeticError(f"WRONG: {name} at {size} differs by {error:.1e}")
    return times


def candidate_worker(folder, rows, pipe):
    """Kernel after kernel in one process, until one fails: that may have lost the device."""
    from experiments.peers.nimble import nimble_ctypes
    known = candidates.kernels()
    inputs, wanted = {}, {}
    while (number := pipe.recv()) is not None:
        row = rows[number]
        name = row["kernel"]
        kernel = known[name]
        if name not in inputs:
            inputs = {name: {size: kernel.inputs(size) for size in kernel.sizes}}
            wanted = {name: {}}
        try:
            if not row["default"] and not wanted[name]:  # in this process
                default = next(r for r in rows if r["kernel"] == name and r["default"])
                run_candidate(folder, default, kernel, inputs[name], wanted[name], nimble_ctypes)
            outcome = (run_candidate(folder, row, kernel, inputs[name], wanted[name],
                                     nimble_ctypes), "")
        except Exception as error:  # noqa: BLE001
            outcome = ({}, f"{type(error).__name__}: {batch.one_line(error)[:300]}")
            if not isinstance(error, ArithmeticError):
                outcome += (batch.Last(),)
        pipe.send((number, *outcome))


def candidates_apart(folder, out, seconds):
    """Returns what the part finds in a process of its own: one that has used the GPU can't fork
    processes that do."""
    out.mkdir(parents=True, exist_ok=True)
    record = out / "gpu.json"
    record.unlink(missing_ok=True)
    subprocess.run([sys.executable, "-m", "experiments.gpu.check", str(folder), "--parts",
                    "candidates", "--out", str(out), "--seconds", str(seconds)],
                   stdout=subprocess.DEVNULL, check=False)
    return json.loads(record.read_text())["candidates"]


def run_candidates(folder, deadline, put):
    """Runs what is packed, kernel by kernel, the default configuration of each first."""
    rows = json.loads((folder / "candidates.json").read_text())
    order = {name: i for i, name in enumerate(dict.fromkeys(row["kernel"] for row in rows))}
    rows.sort(key=lambda row: (order[row["kernel"]], not row["default"]))
    last = 0.0

    def record(outcomes):
        nonlocal last
        if time.monotonic() - last < 2 and len(outcomes) < len(rows):
            return
        last = time.monotonic()
        done = [{**rows[n], "ns": ns, **({"problem": problem} if problem else {})}
                for n, (ns, problem) in sorted(outcomes.items())]
        put({"packed": len(rows), "rows": done})
        if time.monotonic() > deadline:
            raise TimeoutError

    try:
        batch.run_all(len(rows), candidate_worker, lambda _: (folder, rows), 1, 30,
                      lambda number, message, seconds: [{}, message], record)
    except TimeoutError:
        say("no time left for the other candidates")


# ------------------------------------------------------------------ NVIDIA's libraries

def run_vendor(folder, deadline, put):
    from experiments.peers.nimble import nimble_ctypes
    vendor.find_libraries(os.environ, sys.path)
    vendor.run(folder, nimble_ctypes, models.error, lambda: time.monotonic() < deadline, put)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="scripts/gpu-check run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default="build/gpu-check")
    parser.add_argument("--out", type=pathlib.Path, default="experiments/results")
    parser.add_argument("--parts", default=",".join(PARTS), metavar="P[,P…]")
    parser.add_argument("--models", default="", metavar="N[,N…]", help="(default: all packed)")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1),
                        help="processes that run operators' tests (default: %(default)s)")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    deadline = begin + options.seconds
    folder, parts = options.folder.resolve(), options.parts.split(",")
    asked = options.parts != parser.get_default("parts")  # for these, which must be there
    for name in parts:
        if name not in PARTS:
            parser.error(f"there is no part {name}; they are {', '.join(PARTS)}")
    for name in filter(None, options.models.split(",")):
        if name not in models.MODELS:
            parser.error(f"there is no model {name}; they are {', '.join(models.MODELS)}")
    os.environ["NIMBLE_LIBRARY"] = str(folder / "libnimble.so")
    results = Results(options.out)
    failed = False

    def part(name, run):
        nonlocal failed
        if name not in parts:
            return
        if time.monotonic() > deadline:
            failed = True
            say(f"no time left for {name}")
            return
        say(f"{name} ({time.monotonic() - begin:.0f} s)")
        try:
            found = run()
            if found is not None:  # else it has put what it found
                results.put(name, found)
        except Exception:  # noqa: BLE001
            failed = True
            results.put(name, {"failed": traceback.format_exc(limit=4)})

    part("machine", machine)
    part("operators", lambda: operators(folder, options.jobs))
    if (folder / tuning.FOLDER / "tuning.json").exists():
        part("tuning", lambda: tuning.run(folder, options.out,
                                          min(TUNING_SECONDS, deadline - time.monotonic())))
        failed |= "tuning" in parts and not tuning.is_whole(results.data.get("tuning", {}))
    elif asked and "tuning" in parts:
        failed = True
        say(f"{folder} has no tuning campaign: pack one")
    chosen = list(filter(None, options.models.split(","))) if options.models else [
        name for name in models.MODELS if (folder / f"{name}.seeded").exists()]
    files = {}
    all_models, profiles = {}, {}
    if not {"models", "profile"} & set(parts):
        chosen = []
    elif not chosen and asked:
        failed = True
        say(f"{folder} has no models: pack some")
    for number, name in enumerate(chosen):
        model = models.MODELS[name]
        if time.monotonic() > deadline:
            failed = True
            say(f"no time left for {', '.join(chosen[number:])}")
            break
        say(f"{name} ({time.monotonic() - begin:.0f} s)")
        one = all_models[name] = {}
        try:
            files[name] = folder / f"{name}.nimble"
            files[name].write_bytes(seeded.load(folder / f"{name}.seeded", model.weights()))
            if "profile" in parts:
                profiles[name] = profile(model, files[name])
                results.put("profile", profiles)
            if "models" in parts:
                left = (deadline - time.monotonic()) / (len(chosen) - number)
                run_model(model, files[name], time.monotonic() + left * 0.8,
                          not options.no_compile, one)
        except Exception:  # noqa: BLE001
            failed = True
            one.setdefault("failed", {})["nimble"] = traceback.format_exc(limit=4)
        results.put("models", all_models)
        files[name].unlink(missing_ok=True)
    if (folder / "candidates.json").exists():
        if {"models", "profile"} & set(parts):
            part("candidates", lambda: candidates_apart(
                folder, options.out / "candidates", deadline - time.monotonic()))
        else:
            part("candidates", lambda: run_candidates(
                folder, deadline, lambda found: results.put("candidates", found)))
    elif asked and "candidates" in parts:
        failed = True
        say(f"{folder} has no candidates: pack some")
    if (folder / "vendor.json").exists():
        part("vendor", lambda: run_vendor(folder, deadline,
                                          lambda found: results.put("vendor", found)))
    elif asked and "vendor" in parts:
        failed = True
        say(f"{folder} has no kernels beside a vendor's routine: pack some")
    found = results.data.get("vendor", {})
    # Of a machine without the libraries only who asks for the part expects them.
    if asked and "vendor" in parts and not vendor.is_whole(found):
        failed = True
        say("not each kernel was compared with a library's routine")
    print(tables.page(results.data))
    wrong = (bool(results.data.get("operators", {}).get("wrong"))
             or any("WRONG" in row.get("problem", "")
                    for row in results.data.get("candidates", {}).get("rows", []))
             or vendor.is_wrong(found)
             or tuning.is_wrong(results.data.get("tuning", {}))
             or any(not case.get("right") for one in all_models.values()
                    for case in one.get("cases", {}).values()))
    return 3 if wrong else 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
