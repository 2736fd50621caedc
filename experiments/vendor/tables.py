"""Who wins where: a vendor's routines against nimble's kernels, by workload and shape and in whole
models.

The unit of the comparison is a kernel's label (its operators, and what is fixed of their extents) at
a shape that a model meets; what a run calls of it several times counts as often.
"""

import collections

from experiments.harness import statistics
from experiments.harness.systems import NIMBLE
from experiments.roofline import work
from experiments.studies.output import bar_line, decimal, make_bar, markdown_table, percent
from experiments.vendor.models import shape_text, title_of
from experiments.vendor.records import MIXED, OWN, VENDOR

# The bars: of the time of what both can do, the vendor's over nimble's; of a whole model, without
# vendor's routines over with them; of what the tables chose, over the better of both.
LEAST_OVER, LEAST_WHOLE, MOST_CHOSEN = 1.0, 0.98, 1.03
COLOURS = {OWN: NIMBLE["nimble"].colour, VENDOR: "#0072B2"}


def refusals(campaign):
    """Returns {why no routine took part: of how many workloads} of what `nimble tune` says."""
    return dict(collections.Counter(one["no_vendor"] for one in campaign["workloads"]
                                    if one.get("no_vendor") and not took_part(one)))


def took_part(workload):
    """Whether a routine was timed beside nimble's at a size at least."""
    return workload.get("vendor", {}).get("sizes", 0) > 0


def kernels_of(inspected):
    """Returns {kernel: (label, the symbols of vendor's routines among its implementations)} of what
    `nimble inspect --kernels` prints."""
    labels = work.read(inspected)
    return {entry["name"]: (labels[entry["name"]].label, {
        one["symbol"] for one in entry["implementations"] if one["kind"] == "vendor"})
        for entry in inspected["kernels"]}


def calls_of(kernels, profile):
    """Returns {(label, shape's text): (calls, µs, µs of vendor's routines) in one run}."""
    found = {}
    for call in profile["kernels"]:
        label, routines = kernels[call["name"]]
        key = label, ", ".join(f"{name} = {extent}" for name, extent in call["shape"].items())
        us = call["total_ns"] / profile["runs"] / 1e3
        before = found.get(key, (0.0, 0.0, 0.0))
        found[key] = (before[0] + call["count"] / profile["runs"], before[1] + us,
                      before[2] + us * (call["implementation"] in routines))
    return found


def compare_calls(calls):
    """calls: {build: [calls_of of each pass]}. Returns a row for each label and shape that a
    vendor's routine runs in the build that has them wherever there is one; what it shares with
    kernels that have none is left out."""
    rows = []
    for key, (count, us, routines) in calls[VENDOR][0].items():
        if not routines or routines < us:
            continue
        passes = {build: [one[key][1] for one in found if key in one]
                  for build, found in calls.items()}
        if min(map(len, passes.values())) < len(calls[VENDOR]):
            continue
        systems, comparison = statistics.summarize(passes, [VENDOR], OWN)
        mixed = calls[MIXED][0][key]
        rows.append({"label": key[0], "shape": key[1], "calls": count,
                     **{f"{build}_us": systems[build]["median"] for build in passes},
                     "ratio": comparison["ratio"], "ratio_low": comparison["ratio_low"],
                     "ratio_high": comparison["ratio_high"],
                     "chosen": VENDOR if mixed[2] >= mixed[1] / 2 else OWN})
    return sorted(rows, key=lambda row: -row["own_us"])


def winner(row):
    """Returns the side that is faster; None where the 95 % interval holds both."""
    return OWN if row["ratio_low"] > 1 else VENDOR if row["ratio_high"] < 1 else None


def mean(ratios):
    return statistics.geometric_mean(ratios, [1] * len(ratios))


def summarise_rows(rows):
    """Returns how often and by how much each side wins, and what the tables made of it."""
    total = {side: sum(row[f"{side}_us"] for row in rows) for side in (OWN, VENDOR, MIXED)}
    better = sum(min(row[f"{OWN}_us"], row[f"{VENDOR}_us"]) for row in rows)
    won = {side: [row for row in rows if winner(row) == side] for side in (OWN, VENDOR)}
    return {"compared": len(rows), "own_wins": len(won[OWN]), "vendor_wins": len(won[VENDOR]),
            "own_by": mean([row["ratio"] for row in won[OWN]]),
            "vendor_by": mean([1 / row["ratio"] for row in won[VENDOR]]),
            "vendor_chosen": sum(row["chosen"] == VENDOR for row in rows),
            "over": total[VENDOR] / total[OWN] if rows else None,
            "chosen_over": total[MIXED] / better if rows else None}


def summarise_shape(measured):
    """Returns the entry of a shape: the builds' times, without vendor's routines over with them, and
    the rows of `compare_calls`."""
    systems, without = statistics.summarize(measured["rounds"], [OWN], MIXED)
    _, whole = statistics.summarize(measured["rounds"], [VENDOR], OWN)
    rows = compare_calls(measured["calls"])
    served = sum(row["own_us"] for row in rows)
    return {"shape": shape_text(measured["shape"]), "systems": systems,
            **{key: without[key] for key in ("ratio", "ratio_low", "ratio_high")},
            "vendor_over_own": whole["ratio"], "share": served / systems[OWN]["median"],
            "rows": rows}


def summarise(measured):
    """Returns what the result says of a case's runs."""
    entries = [summarise_shape(one) for one in measured]
    rows = [row for entry in entries for row in entry["rows"]]
    labels = {}
    for row in rows:
        labels.setdefault(row["label"], []).append(row)
    return {"entries": entries, "all": summarise_rows(rows),
            "whole": mean([entry["ratio"] for entry in entries]),
            "workloads": [{"label": label, "us": sum(row["own_us"] for row in of),
                           "lowest": min(row["ratio"] for row in of),
                           "highest": max(row["ratio"] for row in of), **summarise_rows(of)}
                          for label, of in labels.items()]}


def bars(cases):
    """Returns the bars of all cases; one that failed, or in which no routine ran, keeps none."""
    out = []
    for case in cases:
        found = case.get("all") or {"compared": 0, "over": None, "chosen_over": None}
        there = found["compared"] > 0

        def bar(name, value, **limit):
            out.append(make_bar(f"{case['title']}: {name}", value, there, **limit))
        bar("workloads and shapes at which both sides ran", found["compared"], least=1)
        bar("oneDNN's time over nimble's, of all of them", found["over"], least=LEAST_OVER)
        bar("tables' choice over the better of both", found["chosen_over"], most=MOST_CHOSEN)
        bar("whole model, compiled without oneDNN over with it, geometric mean",
            case.get("whole"), least=LEAST_WHOLE)
    return out


def summary_table(cases):
    return markdown_table(
        ["", "compared", "nimble faster", "by", "oneDNN faster", "by", "oneDNN's time / nimble's",
         "oneDNN in the tables", "tables' choice / better of both", "model without / with oneDNN"],
        [[case["title"], str(found["compared"]), str(found["own_wins"]), decimal(found["own_by"]),
          str(found["vendor_wins"]), decimal(found["vendor_by"]), decimal(found["over"]),
          str(found["vendor_chosen"]), decimal(found["chosen_over"]), decimal(case["whole"], 3)]
         for case in cases if (found := case.get("all"))])


def whole_table(case):
    return markdown_table(
        ["", "by the tables, ms", "without oneDNN, ms", "oneDNN wherever it can, ms",
         "without / with", "served by oneDNN at most"],
        [[entry["shape"], *(decimal(entry["systems"][build]["median"] / 1e3, 3)
                            for build in (MIXED, OWN, VENDOR)),
          f"{entry['ratio']:.3f} ({entry['ratio_low']:.3f} – {entry['ratio_high']:.3f})",
          percent(entry["share"])] for entry in case["entries"]])


def workloads_table(case):
    return markdown_table(
        ["", "shapes", "nimble faster", "oneDNN faster", "oneDNN's time / nimble's", "lowest",
         "highest", "oneDNN in the tables"],
        [[row["label"], str(row["compared"]), str(row["own_wins"]), str(row["vendor_wins"]),
          decimal(row["over"]), decimal(row["lowest"]), decimal(row["highest"]),
          str(row["vendor_chosen"])] for row in case["workloads"]])


def searched_text(case):
    found = case["searched"]
    shapes = sum(one["shapes"] for one in found)
    text = (f"Of {case['tables']} tables {len(found)} are of workloads that a routine of oneDNN can "
            f"serve; tuning, of {case['tuned_s']:.0f} s, measured both sides at {shapes} shapes, and "
            f"the routine was faster at {sum(one['vendor_faster'] for one in found)} of them than "
            "the fastest of nimble's candidates.")
    if case["refused"]:
        text += " No routine took part elsewhere: " + "; ".join(
            f"{why} ({count})" for why, count in case["refused"].items()) + "."
    missing = sum(one["missing"] for one in case["changes"].values())
    if missing:
        text += (f" For {missing} entries of tables there was no configuration of the other side: "
                 "they stayed.")
    return text


def markdown(result):
    cases = result["models"]
    done = [case for case in cases if "failure" not in case]
    lines = [
        "# oneDNN's routines against nimble's kernels", "",
        f"{result['machine']['cpu']}, {result['threads']} threads. Each model is tuned at the shapes "
        "below, with routines of oneDNN among the candidates, and compiled three times: by the tables, with nimble's best "
        "where they have a routine, and with a routine wherever there is one. The three run "
        "interleaved and profiled; a workload at a shape is won where the 95 % interval of the ratio "
        "lies on one side of 1.", "", *summary_table(cases), ""]
    for case in done:
        lines += [f"## {case['title']}", "", searched_text(case), "", *whole_table(case), ""]
        if case["workloads"]:
            lines += [*workloads_table(case), ""]
    failed = [f"- {case['title']}: {case['failure']}" for case in cases if "failure" in case]
    if failed:
        lines += ["What failed:", "", *failed, ""]
    if result["left_out"]:
        names = ", ".join(map(title_of, result["left_out"]))
        lines += [f"Not measured: {names}, whose type this CPU has no instructions for.", ""]
    lines += ["Bars:", "", *(bar_line(bar, lambda value: "–" if value is None else f"{value:.4g}",
                                      "{:g}".format) for bar in result["bars"])]
    return "\n".join(lines) + "\n"


def draw(figure, result):
    """Each workload and shape: oneDNN's time over nimble's, by nimble's time."""
    cases = [case for case in result["models"] if case.get("all")]
    figure.set_size_inches(9, 5)
    axis = figure.subplots()
    for number, case in enumerate(cases):
        rows = [row for entry in case["entries"] for row in entry["rows"]]
        axis.scatter([number] * len(rows), [row["ratio"] for row in rows], alpha=0.6,
                     s=[max(6.0, min(200.0, row["own_us"] / 20)) for row in rows],
                     c=[COLOURS[row["chosen"]] for row in rows])
    axis.axhline(1, color="#000000", linewidth=0.8)
    axis.set_yscale("log")
    axis.set_xticks(range(len(cases)), [case["title"].replace(", ", "\n") for case in cases],
                    fontsize=8)
    axis.set_ylabel("oneDNN's time / nimble's")
    axis.set_title("Workloads and shapes by what the tables chose: orange nimble, blue oneDNN; area: "
                   f"time\n{result['machine']['cpu']}", fontsize=9)
    axis.grid(alpha=0.3, axis="y")
