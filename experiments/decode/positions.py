"""Prints the latency of a step by its position, from a result file of the experiment.

    python -m experiments.decode.positions [experiments/results/decode.json]

A sequence of length b takes as long as one of length a and the steps at positions a to b: the
difference of their median times, over b - a. All systems in µs.
"""

import json
import pathlib
import sys

from experiments.harness.report import RESULTS


def steps(case):
    """Yields (from, to, {system: µs a step}) of one case of a result file."""
    entries = sorted(case["lengths"], key=lambda entry: entry["length"])
    before, total = 0, {}
    for entry in entries:
        length = entry["length"]
        now = {name: value["median"] for name, value in entry["systems"].items()}
        if total:  # the shortest sequence holds the prompt, too
            yield before, length, {name: (us - total[name]) / (length - before)
                                   for name, us in now.items()}
        before, total = length, now


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "decode.json"
    for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
        print(case["name"])
        for low, high, found in steps(case):
            print(f"  positions {low:>4} to {high:>4}  " + "  ".join(
                f"{name} {us:8.1f}" for name, us in found.items()))


if __name__ == "__main__":
    main()
