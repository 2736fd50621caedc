"""Each kernel of a network against its limit: its operations over the peak of multiply-adds, or the
bytes that it reads and writes over the bandwidth of the nearest memory that holds them, whichever
takes longer. `nimble doctor --measure` measures the peak and the bandwidths; the latter are of
reading, so that a kernel that mostly writes stays further from its limit.
"""

import re

from experiments.images.networks import MOST_OVER_LIMIT
from experiments.roofline.tables import last_cache, roofs

LEVELS = ("read_l2", "read_l3")  # what a cache of several threads' kernels reads from
SHARED_FROM = 3  # caches of this level on are one for all threads


def level_of(cache):
    """Returns the level of a cache's name like "L2 Unified"."""
    return int(re.match(r"L(\d)", cache)[1])


def memories(peaks, threads, caches):
    """Returns (bytes that it holds, bytes a second) of each memory, the nearest first; None holds
    all. peaks: measurements of `nimble doctor`; caches: what machine.describe says."""
    found = []
    for kind in LEVELS:
        level = int(kind[-1])
        sizes = {name: size for name, size in caches.items() if level_of(name) == level}
        rates = [ceiling["value"] for one in peaks for ceiling in one["ceilings"]
                 if ceiling["kind"] == kind and ceiling["threads"] == threads]
        if sizes and rates:
            held = last_cache(sizes) * (1 if level >= SHARED_FROM else threads)
            found.append((held, max(rates)))
    return [*found, (None, roofs(peaks, threads)["bytes"])]


def limit_us(flops, moved, peak, levels):
    """Returns the µs that a call takes at least."""
    rate = next(rate for held, rate in levels if held is None or moved <= held)
    return 1e6 * max(flops / peak, moved / rate)


def calls_of(kernels, profile):
    """Returns what one run calls: for each kernel and shape its label, kind, calls, µs of all of
    them, and the operations and bytes of one.

    kernels: {name: work.Kernel}; profile: nimble's, of some runs.
    """
    found = []
    for call in profile["kernels"]:
        kernel, shape = kernels[call["name"]], call["shape"]
        found.append({"label": kernel.label, "kind": kernel.kind,
                      "calls": call["count"] / profile["runs"],
                      "us": call["total_ns"] / profile["runs"] / 1e3,
                      "flops": kernel.flops(shape), "bytes": kernel.bytes(shape)})
    return found


def against_limits(calls, peak, levels):
    """Returns a row for each label of `calls_of`: calls, µs and least µs in one run; first those
    that lose most."""
    rows = {}
    for call in calls:
        row = rows.setdefault(call["label"], {"label": call["label"], "kind": call["kind"],
                                              "calls": 0.0, "us": 0.0, "limit_us": 0.0})
        row["calls"] += call["calls"]
        row["us"] += call["us"]
        row["limit_us"] += call["calls"] * limit_us(call["flops"], call["bytes"], peak, levels)
    return sorted(rows.values(), key=lambda row: row["limit_us"] - row["us"])


def over(row):
    """Returns how many times its limit a row takes."""
    return row["us"] / row["limit_us"] if row["limit_us"] else float("inf")


def summarise(rows):
    """Returns how many kernels there are, how many of them are too far from their limit, what of
    the time the others take, and the time of all over their limits."""
    beyond = [row for row in rows if over(row) > MOST_OVER_LIMIT]
    whole, least = (sum(row[key] for row in rows) for key in ("us", "limit_us"))
    return {"kernels": len(rows), "beyond": len(beyond),
            "share_within": 1 - sum(row["us"] for row in beyond) / whole if whole else None,
            "over": whole / least if least else None}
