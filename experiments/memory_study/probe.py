"""Runs one executable and prints what it took of memory as JSON:
`python -m experiments.memory_study.probe REQUEST`, a process for each, so that none inherits what
another one left.
"""

import json
import sys

import numpy as np

from experiments.peers.nimble import nimble_ctypes

VOCABULARY = 30522
INSTRUCTIONS = ("AllocStorage", "FreeStorage", "AllocTensor", "AllocTensorReg", "FreeTensor")


def draw(port, sizes):
    """Returns a drawn array for an input port."""
    shape = [sizes[d] if d in sizes else int(d) for d in port.dims]
    random = np.random.default_rng(1)
    if port.dtype.kind == "f":
        return random.standard_normal(shape).astype(port.dtype)
    if "mask" in port.name:
        return np.ones(shape, port.dtype)
    return random.integers(0, 2 if "type" in port.name else VOCABULARY, shape, port.dtype)


def blocks(before, after, runs):
    """Returns per run: blocks handed out, and those of them that the system was asked for."""
    handed = after.allocations - before.allocations
    return {"blocks": handed / runs,
            "system": (handed - (after.reuses - before.reuses)) / runs}


def instructions(profile):
    """Returns {instruction: {count, ns} per run} of what handles memory."""
    found = {entry["name"]: entry for entry in profile["instructions"]}
    return {name: {"count": found[name]["count"] / profile["runs"],
                   "ns": found[name]["total_ns"] / profile["runs"]}
            for name in INSTRUCTIONS if name in found}


def steady(session, inputs, warm, runs):
    """Returns what a run takes once its shape has been met."""
    call = session.bind(inputs)
    for _ in range(warm):
        call.run()
    session.set_profiling(True)
    before = session.memory()
    for _ in range(runs):
        call.run()
    after = session.memory()
    profile = session.profile()
    session.set_profiling(False)
    return {"instructions": instructions(profile), **blocks(before, after, runs),
            "wall_ns": profile["wall_ns"] / profile["runs"],
            "kernel_ns": profile["kernel_ns"] / profile["runs"],
            "reserved": after.reserved}


def changing(session, many, rounds):
    """Returns what a run takes where each has another shape than the one before."""
    session.set_profiling(True)
    before = session.memory()
    for _ in range(rounds):
        for inputs in many:
            session.run(inputs)
    after, profile = session.memory(), session.profile()
    session.set_profiling(False)
    return {"instructions": instructions(profile), **blocks(before, after, rounds * len(many)),
            "wall_ns": profile["wall_ns"] / profile["runs"], "reserved": after.reserved}


def main():
    request = json.loads(sys.argv[1])
    model = nimble_ctypes.Model(request["file"])
    session = nimble_ctypes.Session(model, request["threads"], pin=True)
    many = [{port.name: draw(port, sizes) for port in model.inputs} for sizes in request["sizes"]]
    results, digest = [], []
    for inputs in many:
        output = session.run(inputs)[model.outputs[0].name]
        digest.append([float(output.min()), float(output.max()), float(output.mean())])
        peak = session.memory().peak
        results.append({**steady(session, inputs, request["warm"], request["runs"]),
                        "peak": peak})
    answer = {"shapes": results, "outputs": digest, "version": nimble_ctypes.version()}
    if len(many) > 1:
        answer["changing"] = changing(session, many, request["rounds"])
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
