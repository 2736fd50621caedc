"""Lengths of the MRPC sentences and how much each measured length stands for."""

import collections

from experiments.harness.errors import USAGE, ExperimentError
from experiments.harness.experiment import ROOT

FILE = ROOT / "experiments" / "workloads" / "mrpc-token-lengths.tsv"


def read(columns, part=None):
    """Returns the named columns of the file as numbers, a tuple for each pair of sentences: of one
    part ("train" or "test"), or all."""
    rows, header = [], None
    with open(FILE, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("#"):
                continue
            fields = line.rstrip("\n").split("\t")
            if header is None:
                header = [fields.index(column) for column in columns]
            elif part in (None, fields[0]):
                rows.append(tuple(int(fields[i]) for i in header))
    return rows


def histogram(columns):
    """Returns {length: occurrences} over the named columns of the file, all parts."""
    counts = collections.Counter(length for row in read(columns) for length in row)
    return dict(sorted(counts.items()))


def split(counts):
    """Returns (what tuning sees, what is reported): the even lengths and the odd ones, so that no
    reported length was tuned for and both parts span the same range."""
    return ({length: count for length, count in counts.items() if length % 2 == 0},
            {length: count for length, count in counts.items() if length % 2})


def quantile_lengths(counts, number):
    """Returns the shortest and longest length and quantiles between, `number` in all."""
    ordered = sorted(length for length, count in counts.items() for _ in range(count))
    return sorted({ordered[round(i * (len(ordered) - 1) / (number - 1))] for i in range(number)})


def weights(counts, lengths):
    """Returns {measured length: occurrences it stands for}: every sentence counts for the nearest
    measured length, the shorter one on a tie."""
    result = dict.fromkeys(lengths, 0)
    for length, count in counts.items():
        result[min(lengths, key=lambda measured: (abs(measured - length), measured))] += count
    return result


def parse(text, counts, any_length=True):
    """Returns the lengths of --lengths: `19,53,104`, ranges `19-104`, or `all`; without
    `any_length` those of them that occur."""
    if text == "all":
        return list(counts)
    lengths = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ExperimentError(f"--lengths {text}: can't read “{part}”; write numbers and "
                                  "ranges like 19,53,60-64, or all", USAGE)
        lengths.update(range(int(first), int(last or first) + 1))
    if not lengths or min(lengths) < 1 or max(lengths) > 512:
        raise ExperimentError(f"--lengths {text}: lengths go from 1 to 512", USAGE)
    if not any_length and not lengths & set(counts):
        raise ExperimentError(f"--lengths {text}: none of them occurs; lengths go from "
                              f"{min(counts)} to {max(counts)}", USAGE)
    return sorted(lengths if any_length else lengths & set(counts))
