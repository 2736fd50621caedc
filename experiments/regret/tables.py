"""What a report on dispatch says of shapes that nobody measured: regrets, and bars on them."""

import numpy as np

from experiments.studies.output import bar_lines, make_bar, markdown_table, percent

MOST_MEDIAN, MOST_P95 = 0.02, 0.08
# The bound is to hold at so many of the shapes.
LEAST_WITHIN = 0.95


def spread(values):
    """Returns median and 95th percentile (the least value that 95 % do not exceed) and the worst;
    None for nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return {"median": float(np.median(ordered)),
            "p95": ordered[(len(ordered) * 95 + 99) // 100 - 1], "worst": ordered[-1]}


def bounds_of(tuned):
    """What the campaign foretells, by workload, before any other shape is measured: the largest
    regret of its table at the shapes that it was made at or at those it was not made at (the
    campaign holds a few out), and how far two times of one schedule lay apart, as no smaller regret
    can be told from none. Of workloads without a table nothing is foretold."""
    return {w["workload"]: max(w["worst_regret"], w.get("held_out_worst_regret", 0.0))
            + w.get("noise", 0.0)
            for w in tuned["workloads"] if "table" in w}


def workloads(report, bounds):
    """Returns a row for each workload of a report that was measured."""
    rows = []
    for w in report["workloads"]:
        shapes = w["shapes"]
        if not shapes:
            continue
        searched = [s for s in shapes if "unsearched" in s]
        bound = bounds.get(w["workload"])
        rows.append({
            "label": w["label"], "symbols": w["symbols"], "shapes": len(shapes),
            "searched": len(searched), "table": bool(w["table"]), "pool": w["pool"],
            "candidates": w["candidates"],
            "took_part": float(np.median([s["candidates"] for s in shapes])),
            "fewest": min(s["candidates"] for s in shapes), "failed": w["failed"],
            "regret": spread([s["regret"] for s in shapes]),
            "tree": spread([s["tree_regret"] for s in shapes]),
            "pool_regret": spread([s["pool_regret"] for s in shapes]),
            "noise": spread([s["noise"] for s in shapes]),
            "gain": spread([s["default_ns"] / s["chosen_ns"] - 1 for s in shapes]),
            # At the searched shapes alone, with what the search found and before it.
            "regret_searched": spread([s["regret"] for s in searched]),
            "regret_unsearched": spread([s["unsearched"] for s in searched]),
            "bound": bound,
            "within": None if bound is None else
            sum(s["regret"] <= bound for s in shapes) / len(shapes)})
    return rows


def summarise(report, bounds):
    """Returns the rows and, over all shapes of all workloads, the regret and the noise."""
    rows = workloads(report, bounds)
    shapes = [s for w in report["workloads"] for s in w["shapes"]]
    several = [s for w in report["workloads"] for s in w["shapes"] if len(w["symbols"]) > 1]
    searches = sum(row["searched"] for row in rows)
    judged = [row for row in rows if row["bound"] is not None]
    count = sum(row["shapes"] for row in judged)
    plain = report["consumed_s"] - report["searched_s"]
    return {"rows": rows, "shapes": len(shapes), "searches": searches,
            "regret": spread([s["regret"] for s in shapes]),
            "regret_several": spread([s["regret"] for s in several]), "several": len(several),
            "noise": spread([s["noise"] for s in shapes]),
            "within": sum(row["within"] * row["shapes"] for row in judged) / count if count
            else None,
            "complete": report["complete"], "skipped": report["skipped"],
            "seconds_per_shape": plain / len(shapes) if shapes else None,
            "seconds_per_search": report["searched_s"] / searches if searches else None}


def bars(models, shapes, searches):
    """models: {title: summary}; shapes: {title: how many there are to be at least}; searches: how
    many in all. Regret at workloads of several symbols has bars of its own, lest those of one
    symbol, which are easier, hide it."""
    out = []

    def bar(name, value, count=False, **limit):
        out.append(make_bar(name, value, **limit, count=count))
    for title, model in models.items():
        regret = model["regret"] or {"median": None, "p95": None}
        bar(f"{title}: median regret", regret["median"], most=MOST_MEDIAN)
        bar(f"{title}: 95th percentile", regret["p95"], most=MOST_P95)
        several = model["regret_several"] or {"median": None, "p95": None}
        bar(f"{title}, several symbols: median regret", several["median"], most=MOST_MEDIAN)
        bar(f"{title}, several symbols: 95th percentile", several["p95"], most=MOST_P95)
        bar(f"{title}: shapes within the bound that was stated before", model["within"],
            least=LEAST_WITHIN)
        bar(f"{title}: shapes that were measured", model["shapes"], True, least=shapes[title])
    bar("shapes that were measured", sum(m["shapes"] for m in models.values()), True,
        least=sum(shapes.values()))
    bar("of them with a search from nothing", sum(m["searches"] for m in models.values()), True,
        least=searches)
    return out


def two(values):
    return "-" if values is None else f"{percent(values['median'], 1)} / {percent(values['p95'], 1)}"


def duration(value):
    return "-" if value is None else f"{value:.1f} s"


def markdown(result):
    lines = [
        "# Regret at shapes that nobody measured", "",
        f"{result['machine']['cpu']}, {result['threads']} "
        f"thread{'s' if result['threads'] > 1 else ''}. The products of a layer of BERT-base over "
        "batch 1–16 × length 1–512, and a 3 × 3 convolution of 64 channels over height and width. "
        f"Tuned for {result['tuned']['bert']:.0f} s and {result['tuned']['convolution']:.0f} s on "
        "rows drawn with one seed, tried at shapes drawn with another, evenly by ratio; shapes that "
        "tuning measured are left out. The oracle is the best of the campaign's "
        f"{result['top_k']}, of the vendor's routine where one takes part "
        "and, where it is said so, of a search from nothing of "
        f"{result['search_trials']} trials at that very shape. The fastest is chosen by one half of "
        "interleaved samples and timed by the other, so a regret may be below zero. A/A is what the "
        "default schedule loses to itself, chosen and timed alike. The first look at a shape takes "
        f"{result['look']}, so of the largest ones fewer candidates take part, those that lose least "
        "elsewhere. Two figures are the median and the 95th percentile.", ""]
    for title, model in result["models"].items():
        lines += [f"## {title}", "",
                  f"{model['shapes']} shapes of workloads, {duration(model['seconds_per_shape'])} "
                  f"each; {model['searches']} searches, {duration(model['seconds_per_search'])} "
                  f"each{'' if model['complete'] else '; the time ended it'}. Regret "
                  f"{two(model['regret'])}, A/A {two(model['noise'])}; {model['several']} shapes are "
                  f"of workloads of several symbols: {two(model['regret_several'])}.", ""]
        lines += markdown_table(
            ["workload", "symbols", "shapes", "candidates", "regret", "tree", "pool loses", "A/A",
             "searched", "there, before", "and with the search", "bound", "within it",
             "over the default"],
            [[row["label"] + ("" if row["table"] else " (no table)"), ", ".join(row["symbols"]),
              str(row["shapes"]), f"{row['took_part']:.0f} ({row['fewest']} – {row['candidates']})",
              two(row["regret"]), two(row["tree"]), two(row["pool_regret"]),
              two(row["noise"]), str(row["searched"]), two(row["regret_unsearched"]),
              two(row["regret_searched"]), percent(row["bound"], 1), percent(row["within"]),
              percent(row["gain"]["median"], 1, "+")] for row in model["rows"]])
        lines += [*(f"- left out: {text}" for text in model["skipped"]), ""]
        bounded = [row for row in model["rows"] if row["bound"] is not None]
        if bounded:
            loosest = max(bounded, key=lambda row: row["bound"])
            lines += [f"The loosest bound is {percent(loosest['bound'], 1)} ({loosest['label']}), "
                      f"where the largest regret is {percent(loosest['regret']['worst'], 1)}: one so "
                      "far above what is found says little.", ""] \
                if loosest["bound"] > 2 * max(MOST_P95, loosest["regret"]["worst"]) else []
    lines += ["The bound of a workload is stated before any of these shapes is measured: the largest "
              "regret of its table where it was made or at the shapes that the campaign held out, and "
              "how far two times of one schedule lay apart in the campaign.",
              "", f"It took {result['seconds'] / 60:.0f} minutes of {result['within']}. Bars:", ""]
    lines += bar_lines(result["bars"], 1, 1)
    return "\n".join(lines) + "\n"


def draw(figure, result):
    """A map of each workload of several symbols: its shapes, coloured by regret."""
    maps = [(title, w) for title, report in result["reports"].items() for w in report["workloads"]
            if len(w["symbols"]) > 1 and w["shapes"]]
    columns = 3
    rows = max(1, -(-len(maps) // columns))
    figure.set_size_inches(12, 3.6 * rows)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    points = None
    for axis, (title, w) in zip(axes, maps):
        xs, ys = (np.array([s["symbols"][i] for s in w["shapes"]]) for i in (0, 1))
        points = axis.scatter(xs, ys, c=[100 * s["regret"] for s in w["shapes"]], cmap="viridis",
                              vmin=0, vmax=10, s=22)
        searched = [i for i, s in enumerate(w["shapes"]) if "unsearched" in s]
        axis.scatter(xs[searched], ys[searched], facecolors="none", edgecolors="#D55E00", s=60)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.set_xlabel(w["symbols"][0])
        axis.set_ylabel(w["symbols"][1])
        axis.set_title(w["label"][:40], fontsize=8)
    for axis in axes[len(maps):]:
        axis.set_axis_off()
    if points is not None:
        figure.colorbar(points, ax=axes, label="regret, % (ringed: searched there)")
