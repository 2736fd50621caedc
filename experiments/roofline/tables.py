"""What measured runs say against the limits of the machine."""

import math
import re
import statistics as middle

from experiments.harness import statistics
from experiments.roofline.work import CLASSES, COUNTED
from experiments.studies.output import bar_lines, make_bar, markdown_table, percent

FROM, LEAST = 64, 0.8  # the bar: so much of the arithmetic limit from so many tokens on
MOST_OF_PEAK = 1.05  # that products can reach without a doubt about the peak
SHOWN = 128  # tokens at which workloads are told; else the nearest length
TUNED, DEFAULT = "tuned", "default"
PARTS = (*CLASSES, "other")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def roofs(measured, threads, dtype="f32"):
    """Returns the most that any of the measurements of `nimble doctor --measure` found at so many
    threads: `flops` a second in a type, `bytes` a second of reading memory; and each one's figures.
    """
    def values(kind, dtype):
        return [ceiling["value"] for one in measured for ceiling in one["ceilings"]
                if [ceiling[key] for key in ("kind", "dtype", "threads")] == [kind, dtype, threads]]
    compute, memory = values("compute", dtype), values("read_memory", "any")
    return {"flops": max(compute), "bytes": max(memory),
            "measured": {"flops": compute, "bytes": memory}}


def last_cache(caches):
    """Returns the bytes of the largest cache of machine.describe's, like {"L3 Unified": "32768K"}.
    """
    def size(text):
        number, unit = re.fullmatch(r"(\d+)([KMG]?)", text).groups()
        return int(number) * UNITS.get(unit, 1)
    return max((size(text) for text in caches.values()), default=0)


def median_account(accounts):
    """Returns one account (work.account) with the medians of the times of several."""
    first = accounts[0]
    workloads = {
        label: {**row, "us": middle.median(a["workloads"][label]["us"] for a in accounts
                                           if label in a["workloads"])}
        for label, row in first["workloads"].items()}
    return {**first, "wall_us": middle.median(a["wall_us"] for a in accounts),
            "us": {part: middle.median(a["us"][part] for a in accounts) for part in PARTS},
            "workloads": workloads}


def summarise(measured, roof, cache):
    """Returns the row of a length.

    measured: {"length", "rounds": {system: [µs]}, "accounts": {system: [work.account]}};
    roof: what `roofs` says; cache: bytes, beyond which constants come from memory.
    """
    rounds = measured["rounds"]
    main = TUNED if TUNED in rounds else DEFAULT
    others = [name for name in rounds if name != main]
    systems, comparison = statistics.summarize(rounds, others, main)
    accounts = {name: median_account(found) for name, found in measured["accounts"].items()}
    ours = accounts[main]
    us = systems[main]["median"]
    arithmetic = 1e6 * sum(ours["flops"][kind] for kind in COUNTED) / roof["flops"]
    memory = 1e6 * ours["bytes"] / roof["bytes"] if ours["bytes"] > cache else None
    # Split and beyond are of the profiled time, as a profile takes a little of its own; beyond is
    # what of a part the arithmetic limit leaves unexplained.
    return {
        "length": measured["length"], "us": us, "systems": systems,
        "speed_up": {key: comparison[f"ratio{end}"] for key, end in (
            ("value", ""), ("low", "_low"), ("high", "_high"))} if others else None,
        "flops": ours["flops"], "bytes": ours["bytes"], "arithmetic_us": arithmetic,
        "memory_us": memory, "of_arithmetic": arithmetic / us,
        "of_larger": max(arithmetic, memory or 0) / us,
        "split": {part: ours["us"][part] / ours["wall_us"] for part in PARTS},
        "beyond": {part: (ours["us"][part] - 1e6 * ours["flops"].get(part, 0) / roof["flops"])
                   / ours["wall_us"] for part in PARTS},
        "of_peak": {kind: rate(ours["flops"][kind], ours["us"][kind], roof) for kind in COUNTED},
        "workloads": {name: found["workloads"] for name, found in accounts.items()}}


def rate(flops, us, roof):
    """Returns the share of the peak that operations reach in this time; None without a time."""
    return 1e6 * flops / us / roof["flops"] if us else None


def workloads(rows, roof):
    """Returns a row for each workload of products or attention, by its time at the length that is
    shown: its share of the run, what of the peak it reaches there, and the speed of the tuned
    kernel over the default schedule's over all lengths (None in an untuned run)."""
    shown = min(rows, key=lambda row: abs(row["length"] - SHOWN))
    main = TUNED if TUNED in shown["workloads"] else DEFAULT
    whole = sum(entry["us"] for entry in shown["workloads"][main].values())
    found = []
    for label, entry in shown["workloads"][main].items():
        if entry["kind"] not in COUNTED:
            continue
        gains = {row["length"]: row["workloads"][DEFAULT][label]["us"]
                 / row["workloads"][main][label]["us"] for row in rows
                 if main == TUNED and label in row["workloads"][DEFAULT]
                 and label in row["workloads"][main]}
        found.append({
            "label": label, "length": shown["length"], "calls": entry["calls"], "us": entry["us"],
            "share": entry["us"] / whole, "of_peak": rate(entry["flops"], entry["us"], roof),
            "speed_up": geometric_mean(gains.values()) if gains else None,
            "least": min(gains.values(), default=None), "most": max(gains.values(), default=None),
            "by_length": gains})
    return sorted(found, key=lambda row: -row["us"])


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def doubts(roofs, cases):
    """Returns what shows that something else ran while the peaks were measured: limits that are too
    low would keep any bar. roofs: {threads as text: what `roofs` says}."""
    found, least = [], None
    for threads in sorted(map(int, roofs)):
        flops = roofs[str(threads)]["flops"]
        if least and flops < least[1]:
            found.append(f"the peak at {threads} threads, {flops / 1e9:.1f} GFLOP/s, is below that "
                         f"at {least[0]}, {least[1] / 1e9:.1f}")
        least = (threads, flops)
    for case in cases:
        reached = max(row["of_peak"]["products"] or 0 for row in case["lengths"])
        if reached > MOST_OF_PEAK:
            found.append(f"products of {name_of(case)} reach {percent(reached)} of the peak")
    return found


def bars(cases, doubted):
    """Returns a bar for each model and number of threads that was measured at long inputs. None is
    kept where the limits are doubted."""
    found = []
    for case in cases:
        shares = [row["of_arithmetic"] for row in case["lengths"] if row["length"] >= FROM]
        if shares:
            found.append(make_bar(f"{name_of(case)}: the least share of the arithmetic limit from "
                                  f"{FROM} tokens on", min(shares), not doubted, least=LEAST))
    return found


def threads_text(count):
    return f"{count} thread{'s' if count > 1 else ''}"


def name_of(case):
    return f"{case['title']}, {threads_text(case['threads'])}"


def milliseconds(us):
    return "-" if us is None else f"{us / 1e3:.2f}"


def times(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def gain_of(row):
    found = row["speed_up"]
    if found is None:
        return "-"
    return f"{found['value']:.3f} ({found['low']:.3f} – {found['high']:.3f})"


def limits_table(case):
    return markdown_table(
        ["tokens", "ms", "arithmetic limit, ms", "memory limit, ms", "of the arithmetic limit",
         "of the larger", "tuned over default", "products, of the peak", "attention, of the peak"],
        [[str(row["length"]), milliseconds(row["us"]), milliseconds(row["arithmetic_us"]),
          milliseconds(row["memory_us"]), percent(row["of_arithmetic"], 1),
          percent(row["of_larger"], 1), gain_of(row),
          *(percent(row["of_peak"][kind]) for kind in COUNTED)] for row in case["lengths"]])


def split_table(case):
    def cell(row, part):
        share = percent(row["split"][part], 1)
        return f"{share} ({percent(row['beyond'][part], 1)})" if part in COUNTED else share
    return markdown_table(["tokens", *CLASSES, "other instructions", "all beyond the limit"],
                          [[str(row["length"]), *(cell(row, part) for part in PARTS),
                            percent(sum(row["beyond"].values()), 1)] for row in case["lengths"]])


def markdown(result):
    lines = [
        "# Whole models against the roofline", "",
        f"{result['machine']['cpu']}. Batch 1. The arithmetic limit is the operations of products "
        "and attention over the machine's peak of multiply-adds in f32 at the same number of "
        "threads; the memory limit is the bytes of constants that a run reads over the bandwidth "
        f"of reading memory, where they exceed the last-level cache "
        f"({result['last_cache'] / (1 << 20):.0f} MiB). Both are measured in this run by `nimble "
        "doctor --measure`, the most counts. Times are medians of interleaved rounds, tuned and "
        "default schedules by turns, each executable in a process of its own; “tuned over "
        "default” is the default's time over the tuned one's with its 95 % interval. The split is "
        "of profiled runs. Normalisation is all reductions, other instructions are what is not "
        "in kernels.", ""]
    lines += markdown_table(
        ["threads", "peak, GFLOP/s", "each time", "reading memory, GB/s", "each time"],
        [[threads, f"{roof['flops'] / 1e9:.1f}",
          ", ".join(f"{value / 1e9:.1f}" for value in roof["measured"]["flops"]),
          f"{roof['bytes'] / 1e9:.1f}",
          ", ".join(f"{value / 1e9:.1f}" for value in roof["measured"]["bytes"])]
         for threads, roof in result["roofs"].items()])
    if result["doubts"]:
        lines += ["", "Something else ran while the limits were measured, so no bar counts as kept: "
                  f"{'; '.join(result['doubts'])}."]
    for case in result["cases"]:
        lines += ["", f"## {name_of(case)}", "", tuning_text(case["tuning"]), "",
                  *limits_table(case), "", "Where a run's time goes; in brackets what of it the "
                  "arithmetic limit does not explain:", "", *split_table(case)]
    lines += ["", "## Speed-up of tuned over default, by workload", "",
              "Share of the run and of the peak at the length that is named; the speed-up is the "
              "geometric mean over all lengths, with the least and the most of one length.", ""]
    lines += markdown_table(
        ["workload", "tokens", "calls", "of the kernels' time", "of the peak", "tuned over default",
         "least", "most"],
        [[f"{name_of(case)}: {row['label']}", str(row["length"]), f"{row['calls']:g}",
          percent(row["share"], 1), percent(row["of_peak"], 0), times(row["speed_up"]),
          times(row["least"], 2), times(row["most"], 2)]
         for case in result["cases"] for row in case["workloads"]])
    lines += ["", "Bars:", ""]
    lines += bar_lines(result["bars"], 1)
    return "\n".join(lines) + "\n"


def tuning_text(tuning):
    if tuning is None:
        return "Default schedules."
    by = ", ".join(f"{count} {outcome}" for outcome, count in tuning["outcomes"].items())
    threads = ", ".join(map(str, tuning["threads"]))
    return f"Kernels by what the database has of them: {by}; tables for {threads} threads."


def draw(figure, result):
    """By model: above the share of the arithmetic limit over the length, below where a run's time
    goes with the most threads."""
    titles = list(dict.fromkeys(case["title"] for case in result["cases"]))
    figure.set_size_inches(5 * len(titles), 7)
    figure.suptitle(f"Whole models against the roofline\n{result['machine']['cpu']}", fontsize=10)
    axes = figure.subplots(2, len(titles), squeeze=False)
    colours = dict(zip(PARTS, ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#999999")))
    for title, (above, below) in zip(titles, axes.T):
        cases = [case for case in result["cases"] if case["title"] == title]
        for case in cases:
            lengths = [row["length"] for row in case["lengths"]]
            name = threads_text(case["threads"])
            line, = above.plot(lengths, [100 * row["of_larger"] for row in case["lengths"]],
                               marker=".", linewidth=1, linestyle=":",
                               label=f"{name}, larger limit")
            above.plot(lengths, [100 * row["of_arithmetic"] for row in case["lengths"]], marker=".",
                       color=line.get_color(), label=f"{name}, arithmetic limit")
        above.axhline(100 * LEAST, color="#000000", linewidth=1)
        above.axvline(FROM, color="#000000", linewidth=0.5, linestyle="--")
        above.set_title(title, fontsize=10)
        above.set_ylabel("% of the limit")
        above.set_ylim(bottom=0)
        above.set_xscale("log", base=2)
        above.xaxis.set_major_formatter("{x:g}")
        above.grid(alpha=0.3)
        above.legend(fontsize=7)
        rows = cases[-1]["lengths"]
        bottom = [0.0] * len(rows)
        for part in PARTS:
            heights = [100 * row["split"][part] for row in rows]
            below.bar(range(len(rows)), heights, bottom=bottom, color=colours[part], label=part)
            bottom = [a + b for a, b in zip(bottom, heights)]
        below.set_xticks(range(len(rows)), [str(row["length"]) for row in rows], fontsize=8)
        below.set_xlabel(f"tokens, {threads_text(cases[-1]['threads'])}")
        below.set_ylabel("% of a run")
        below.legend(fontsize=7, loc="lower right")
