"""What the memory study says of its figures: reductions, bars, the page, the plot."""

from experiments.studies.output import bar_line, make_bar, markdown_table, percent

PAPER = {"blocks": -0.47, "time": -0.75}
MOST_FOOTPRINT = 0.08
MEGABYTE = 1 << 20


def handling_ns(shape):
    """Returns what the instructions that make and free storages take per run."""
    return sum(shape["instructions"].get(name, {"ns": 0.0})["ns"]
               for name in ("AllocStorage", "FreeStorage"))


def change(before, after):
    """Returns the relative change; None from nothing."""
    return None if before == 0 else after / before - 1


def compare_planning(planned, unplanned):
    """Returns a row for each length and the changes by planning, as means over the lengths."""
    rows = []
    for size, with_plan, without in zip(planned["sizes"], planned["shapes"], unplanned["shapes"]):
        count = [s["instructions"].get("AllocStorage", {"count": 0})["count"]
                 for s in (without, with_plan)]
        time = [handling_ns(s) / 1e3 for s in (without, with_plan)]
        rows.append({"length": size["n"], "storages": count, "time_us": time,
                     "system": [without["system"], with_plan["system"]],
                     "peak": [without["peak"], with_plan["peak"]],
                     "share": [1e3 * t / s["wall_ns"] for t, s in zip(time, (without, with_plan))]})
    def mean(key):
        changes = [change(*row[key]) for row in rows]
        return None if None in changes else sum(changes) / len(changes)
    return rows, {"storages": mean("storages"), "time": mean("time_us"), "peak": mean("peak")}


def compare_footprint(dynamic, static):
    """Returns a network's record: peaks of the live bytes, and the bar."""
    peaks = [found["shapes"][0]["peak"] for found in (dynamic, static)]
    more = change(peaks[1], peaks[0])
    return {"dynamic": peaks[0], "static": peaks[1], "more": more, "kept": more <= MOST_FOOTPRINT,
            "held": [found["shapes"][0]["reserved"] for found in (dynamic, static)]}


def bars(result):
    return [make_bar("system calls for memory in a steady run of BERT",
                     max(row["system"][1] for row in result["planning"]["rows"]), most=0),
            *(make_bar(f"footprint of {name} over its static plan", record["more"],
                       most=MOST_FOOTPRINT) for name, record in result["footprint"].items())]


def markdown(result):
    planning = result["planning"]
    lines = ["# Memory", "",
             f"{result['machine']['cpu']}, {result['threads']} threads.", "",
             "## Allocation in BERT-base", "",
             "Per run at a length that was met before, without and with the pass `plan-memory`. "
             "Storages are executed `AllocStorage`; time is theirs and `FreeStorage`'s, the "
             "profiler's own included; system calls are blocks that the pool had to ask the system "
             "for; the peak is of live bytes.", ""]
    def pair(values, form):
        return [form(value) for value in values]
    rows = []
    for row in planning["rows"]:
        rows.append([str(row["length"]), *pair(row["storages"], "{:.0f}".format),
                     *pair(row["time_us"], "{:.2f}".format),
                     *pair(row["share"], lambda v: percent(v, 2)),
                     *pair(row["system"], "{:g}".format),
                     *pair(row["peak"], lambda v: f"{v / MEGABYTE:.1f}")])
    lines += markdown_table(
        ["tokens", "storages, unplanned", "planned", "µs, unplanned", "planned",
         "of the run, unplanned", "planned", "system calls, unplanned", "planned",
         "peak MiB, unplanned", "planned"], rows)
    changes = planning["changes"]
    lines += ["", f"Planning changes storages by {percent(changes['storages'], 0, '+')} (paper: "
              f"{percent(PAPER['blocks'], 0, '+')}), their time by "
              f"{percent(changes['time'], 0, '+')} (paper: {percent(PAPER['time'], 0, '+')}), the "
              f"peak by {percent(changes['peak'], 0, '+')}. Where every run has another length than "
              f"the one before, the system is asked for {planning['changing'][1]:.2f} blocks a run "
              f"(unplanned: {planning['changing'][0]:.2f}).", "",
              "## Footprint of image networks", "",
              "The most that is live in a run of an executable with dynamic extents, against the "
              "same model compiled for these extents alone.", ""]
    lines += markdown_table(
        ["", "at", "dynamic, MiB", "static, MiB", "more"],
        [[name, ", ".join(f"{k} = {v}" for k, v in record["sizes"].items()),
          f"{record['dynamic'] / MEGABYTE:.2f}", f"{record['static'] / MEGABYTE:.2f}",
          percent(record["more"], 1, "+")] for name, record in result["footprint"].items()])
    lines += ["", "Bars:", ""]
    for bar in result["bars"]:
        lines.append(bar_line(bar, "{:g}".format if bar["most"] == 0
                              else lambda value: percent(value, 1, "+")))
    return "\n".join(lines) + "\n"


def draw(figure, result):
    import numpy as np
    figure.set_size_inches(13, 4.5)
    figure.suptitle(f"Memory planning\n{result['machine']['cpu']}")
    axes = figure.subplots(1, 3)
    rows = result["planning"]["rows"]
    at = np.arange(len(rows))
    for axis, key, label in ((axes[0], "storages", "storages made per run"),
                             (axes[1], "time_us", "µs per run to make and free them")):
        for i, (name, colour) in enumerate((("unplanned", "#999999"), ("planned", "#D55E00"))):
            axis.bar(at + 0.4 * i - 0.2, [row[key][i] for row in rows], 0.38, color=colour,
                     label=name)
        axis.set_xticks(at, [row["length"] for row in rows])
        axis.set(xlabel="BERT-base, tokens", title=label)
        axis.legend()
    nets = result["footprint"]
    at = np.arange(len(nets))
    for i, (key, colour) in enumerate((("static", "#999999"), ("dynamic", "#D55E00"))):
        axes[2].bar(at + 0.4 * i - 0.2, [r[key] / MEGABYTE for r in nets.values()], 0.38,
                    color=colour, label=f"{key} extents")
    axes[2].set_xticks(at, list(nets), fontsize=8)
    axes[2].set(title="most live bytes of a run, MiB")
    axes[2].legend()
    for axis in axes:
        axis.grid(alpha=0.3, axis="y")
