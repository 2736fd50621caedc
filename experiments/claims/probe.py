"""Profiles one executable at some extents and prints it as JSON:
`python -m experiments.claims.probe REQUEST`."""

import json
import sys

from experiments.memory_study.probe import draw
from experiments.peers.nimble import nimble_ctypes


def profile(session, model, sizes, warm, runs):
    """Returns times in µs and counts per run."""
    inputs = {port.name: draw(port, sizes) for port in model.inputs}
    call = session.bind(inputs)
    for _ in range(warm):
        call.run()
    outputs = call.outputs()
    session.set_profiling(True)
    for _ in range(runs):
        call.run()
    found = session.profile()
    session.set_profiling(False)
    per_run = found["runs"]
    return {"wall_us": found["wall_ns"] / per_run / 1e3,
            "kernel_us": found["kernel_ns"] / per_run / 1e3,
            "instructions": [{"name": e["name"], "count": e["count"] / per_run,
                              "us": e["total_ns"] / per_run / 1e3} for e in found["instructions"]],
            "copies": [{**copy, "bytes": copy["bytes"] / per_run, "count": copy["count"] / per_run}
                       for copy in found["copies"]],
            "input_bytes": sum(a.nbytes for a in inputs.values()),
            "output_bytes": sum(a.nbytes for a in outputs.values()),
            "peak": session.memory().peak}


def main():
    request = json.loads(sys.argv[1])
    model = nimble_ctypes.Model(request["file"])
    session = nimble_ctypes.Session(model, request["threads"], pin=True)
    about = json.loads(model.info())
    print(json.dumps({
        "code": about["native_bytes"], "constants": about["constant_bytes"],
        "runs": [profile(session, model, sizes, 3, request["runs"]) for sizes in
                 request["sizes"]]}))


if __name__ == "__main__":
    main()
