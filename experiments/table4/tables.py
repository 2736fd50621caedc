"""What Table 4 says of the bursts of nimble-replay-bench."""

import numpy as np

from experiments.studies.output import bar_lines, make_bar, markdown_table, percent

MOST_OTHERS, MOST_OVER = 0.02, 0.03
RESAMPLES = 2000
# Table 4 of the paper, ms at 128 tokens: device, TVM static, nimble, kernels, others.
PAPER = (("Intel, 18 cores", 19.38, 24.32, 21.06, 3.26), ("ARM, 16 cores", 223.50, 237.41, 228.59,
                                                         8.82), ("Nvidia T4", 5.58, 5.86, 5.60,
                                                                 0.26))


def ratio_of(above, below):
    """Returns the ratio of the medians over rounds and its 95 % interval, rounds resampled."""
    above, below = np.asarray(above, float), np.asarray(below, float)
    picks = np.random.default_rng(0).integers(0, len(above), (RESAMPLES, len(above)))
    resampled = np.median(above[picks], axis=1) / np.median(below[picks], axis=1)
    return {"value": float(np.median(above) / np.median(below)),
            "interval": [float(v) for v in np.percentile(resampled, (2.5, 97.5))]}


def summarise(dynamic, static):
    """Returns the row: times in µs; dynamic, static: what the benchmark says of an executable."""
    def median(values):
        return float(np.median(values))
    total, kernels = median(dynamic["run_us"]), median(dynamic["replay_us"])
    others = ratio_of(dynamic["replay_us"], dynamic["run_us"])
    profile = dynamic["profile"]
    runs = profile["runs"]
    return {
        "static_us": median(static["replay_us"]), "total_us": total, "kernels_us": kernels,
        "others_us": total - kernels,
        "others": {"value": 1 - others["value"], "interval": [1 - v
                                                              for v in others["interval"][::-1]]},
        "over_static": ratio_of(dynamic["run_us"], static["replay_us"]),
        "kernels_over_static": ratio_of(dynamic["replay_us"], static["replay_us"]),
        "static_by_vm_us": median(static["run_us"]),
        "kernel_calls": [dynamic["calls"], static["calls"]],
        "instructions": [{"name": e["name"], "count": e["count"] / runs,
                          "us": e["total_ns"] / runs / 1e3} for e in profile["instructions"]]}


def bars(row):
    over = row["over_static"]["value"] - 1
    return [make_bar("other instructions, of the whole", row["others"]["value"],
                     most=MOST_OTHERS),
            make_bar("nimble over the static build", over, most=MOST_OVER)]


def markdown(result):
    lines = [
        "# Table 4: the virtual machine against a static build", "",
        f"{result['title']} at {result['length']} tokens, {result['machine']['cpu']}. Static: "
        "compiled for this length alone, its kernels called in a row from memory that is there "
        "before, without the virtual machine. nimble: any length, by the virtual machine. Kernels: "
        "the dynamic executable's, called the same way; others is what is left. Each column is "
        "the median of bursts that alternate. Both were tuned for the same time: "
        f"{result['budget']}.", ""]
    rows = []
    for row in result["rows"]:
        low, high = row["others"]["interval"]
        rows.append([
            f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}",
            "-", f"{row['static_us'] / 1e3:.2f}",
            f"{row['total_us'] / 1e3:.2f}", f"{row['kernels_us'] / 1e3:.2f}",
            f"{row['others_us'] / 1e3:.3f}",
            f"{percent(row['others']['value'], 2)} ({percent(low, 1)} – {percent(high, 1)})",
            f"{percent(row['over_static']['value'] - 1, 1, '+')}",
            f"{percent(row['kernels_over_static']['value'] - 1, 1, '+')}",
            f"{row['static_by_vm_us'] / 1e3:.2f}"])
    for device, tvm, total, kernels, others in PAPER:
        rows.append([f"paper: {device}", f"{tvm:.2f}", "-", f"{total:.2f}", f"{kernels:.2f}",
                     f"{others:.2f}", percent(others / total, 1),
                     f"{percent(total / tvm - 1, 1, '+')} (TVM)",
                     f"{percent(kernels / tvm - 1, 1, '+')} (TVM)", "-"])
    lines += markdown_table(
        ["ms", "TVM static", "static", "nimble", "its kernels", "others", "others of the whole",
         "nimble over static", "kernels over static", "static by the machine"], rows)
    for row in result["rows"]:
        lines += ["", f"Instructions of a run, {row['threads']} thread"
                  f"{'s' if row['threads'] > 1 else ''} (`InvokePacked` includes its kernel, the "
                  "profiler's own time is in each):", ""]
        lines += markdown_table(["", "executed", "µs"], [
            [e["name"], f"{e['count']:g}", f"{e['us']:.1f}"] for e in row["instructions"]])
    lines += ["", "Trials: " + "; ".join(f"{name} {found['trials']} of {found['workloads']} "
                                         "workloads" for name, found in result["tuning"].items())
              + ".", "", "Bars:", ""]
    lines += bar_lines(result["bars"], 2, sign="+")
    return "\n".join(lines) + "\n"


def draw(figure, result):
    figure.set_size_inches(8, 4.5)
    axis = figure.subplots()
    axis.set_title(f"{result['title']}, {result['length']} tokens\n{result['machine']['cpu']}",
                   fontsize=10)
    labels, at = [], 0
    for row in result["rows"]:
        for name, parts in (("static", [(row["static_us"], "#999999")]),
                            ("nimble", [(row["kernels_us"], "#D55E00"),
                                        (row["others_us"], "#000000")])):
            left = 0.0
            for us, colour in parts:
                axis.barh(at, us / 1e3, 0.7, left=left, color=colour)
                left += us / 1e3
            labels.append(f"{name}, {row['threads']} thr.")
            at += 1
    axis.set_yticks(range(at), labels)
    axis.invert_yaxis()
    axis.set_xlabel("ms; black: other instructions than kernels")
    axis.grid(alpha=0.3, axis="x")
