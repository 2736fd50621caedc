"""Effect and interval by case between two result files; standard library alone.

A length's median has a 95 % interval; its logarithm is taken as normal with a quarter of the
interval's width as its deviation. The effect of a case is the weighted mean of the logarithms of
new/old over the lengths, whose errors are taken as independent: what shifts a whole run (another
machine, a warmer one) shows as an effect. --relative therefore compares the times over a system's
that both runs measured beside the others, which such a shift leaves alone.
"""

import argparse
import json
import math
import pathlib
import sys

from experiments.harness.errors import ExperimentError, exit_code

REGRESSION = 4
Z = 1.96  # of a 95 % interval
PRACTICAL = 2.0  # percent: what is less counts as nothing


def load(path):
    try:
        result = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        return result, {case["name"]: case for case in result["cases"]}
    except OSError as error:
        raise ExperimentError(str(error)) from None
    except (ValueError, KeyError, TypeError):
        raise ExperimentError(f"{path}: not the result of an experiment that compares speeds"
                              ) from None


def log_time(entry, system, relative):
    """Returns (log of the median, variance of it), or None where the length lacks a system."""
    total = variance = 0.0
    for name, sign in ((system, 1), (relative, -1)):
        if name is None:
            continue
        value = entry["systems"].get(name)
        if value is None:
            return None
        total += sign * math.log(value["median"])
        variance += ((math.log(value["high"]) - math.log(value["low"])) / (2 * Z)) ** 2
    return total, variance


def effect(old, new, system, relative=None):
    """Returns (effect, low, high) in percent, above 0 where the new one is slower; None where no
    length has the system in both."""
    before = {entry["length"]: entry for entry in old["lengths"]}
    pairs = []
    for entry in new["lengths"]:
        earlier = before.get(entry["length"])
        times = earlier and (log_time(earlier, system, relative), log_time(entry, system, relative))
        if times and None not in times:
            pairs.append((entry["count"], times))
    if not pairs:
        return None
    weights = [count for count, _ in pairs]
    if not any(weights):
        weights = [1] * len(pairs)
    total = sum(weights)
    mean = sum(w * (n[0] - o[0]) for w, (_, (o, n)) in zip(weights, pairs)) / total
    deviation = math.sqrt(sum(w * w * (n[1] + o[1])
                              for w, (_, (o, n)) in zip(weights, pairs))) / total
    return tuple(100 * math.expm1(mean + Z * step * deviation) for step in (0, -1, 1))


def verdict(low, high, practical):
    if low > practical:
        return "slower"
    if high < -practical:
        return "faster"
    return "-"


def compare(old_cases, new_cases, systems, relative, practical):
    """Returns rows (case, system, effect, low, high, verdict) of all cases in both."""
    rows = []
    for name, new in new_cases.items():
        if name not in old_cases:
            continue
        found = dict.fromkeys(s for entry in new["lengths"] for s in entry["systems"])
        for system in found:
            if (systems and system not in systems) or system == relative:
                continue
            values = effect(old_cases[name], new, system, relative)
            if values is not None:
                rows.append((name, system, *values, verdict(*values[1:], practical)))
    return rows


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="experiments/compare", description="Compares two result files of an experiment: the "
        "effect on the time, in percent with a 95 % interval, by case and system.",
        epilog="exit codes: 0 no regression, 1 failure, 2 usage, 4 nimble is slower in a case: the "
               "whole interval lies beyond the practical size")
    parser.add_argument("old", metavar="OLD")
    parser.add_argument("new", metavar="NEW")
    parser.add_argument("--relative", metavar="SYSTEM",
                        help="compare the times over this system's in the same run, like torch")
    parser.add_argument("--practical", type=float, default=PRACTICAL, metavar="PERCENT",
                        help="an effect counts beyond this size (default %(default)s)")
    parser.add_argument("--systems", metavar="S[,S…]",
                        help="compare these, each of which counts (default: all, and nimble's "
                             "count)")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    return parser.parse_args(arguments)


def execute(options):
    (old, old_cases), (new, new_cases) = load(options.old), load(options.new)
    if old["experiment"] != new["experiment"]:
        raise ExperimentError(f"{options.old} is of {old['experiment']}, {options.new} of "
                              f"{new['experiment']}")
    systems = options.systems.split(",") if options.systems else None
    rows = compare(old_cases, new_cases, systems, options.relative, options.practical)
    if not rows:
        raise ExperimentError("the two have no case, length and system in common")
    if old["machine"]["cpu"] != new["machine"]["cpu"] and not options.relative:
        print(f"experiments/compare: other machines ({old['machine']['cpu']}, "
              f"{new['machine']['cpu']}); --relative SYSTEM compares what can be", file=sys.stderr)
    if options.format == "json":
        keys = ("case", "system", "effect", "low", "high", "verdict")
        print(json.dumps([dict(zip(keys, row)) for row in rows], indent=1, ensure_ascii=False))
    else:
        width = max(len(row[0]) for row in rows)
        print(f"{'case':<{width}}  {'system':<18} {'effect':>9}  95 % interval")
        for name, system, value, low, high, word in rows:
            print(f"{name:<{width}}  {system:<18} {value:>+8.1f}%  {low:+.1f} to {high:+.1f} %  "
                  f"{word if word != '-' else ''}".rstrip())
    missing = sorted(set(old_cases) ^ set(new_cases))
    if missing:
        print(f"experiments/compare: in one of them only: {'; '.join(missing)}", file=sys.stderr)
    counted = [row for row in rows if systems or row[1].startswith("nimble")]
    return REGRESSION if any(row[5] == "slower" for row in counted) else 0


def main(arguments):
    return exit_code(lambda: execute(parse_arguments(arguments)), program="experiments/compare")
