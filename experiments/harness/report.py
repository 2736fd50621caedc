"""The outputs of an experiment: result file, table, plots."""

import json
import os

from experiments.harness.experiment import ROOT
from experiments.harness.systems import ALL

RESULTS = ROOT / "experiments" / "results"


def write_json(path, value):
    """Writes through a temporary file, so that an interruption never leaves half a result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def table(case):
    """Returns one case as text: µs per token (± half the 95 % interval, in percent), ratios."""
    systems = list(case["lengths"][0]["systems"])
    labels = [ALL[system].label for system in systems]
    width = max(15, *(len(label) + 2 for label in labels))
    lines = [f"{case['name']}: µs per token, median ± half its 95 % interval",
             f"{'length':>6} {'count':>6}" + "".join(f"{label:>{width}}" for label in labels)
             + f"{'best peer':>16}{'ratio':>8}"]
    for entry in case["lengths"]:
        cells = ""
        for system in systems:
            value = entry["systems"][system]
            half = 50 * (value["high"] - value["low"]) / value["median"]
            cells += f"{f'''{value['median'] / entry['length']:.1f} ±{half:.0f} %''':>{width}}"
        best = ALL[entry["best_peer"]].label if entry["best_peer"] else "-"
        ratio = f"{entry['ratio']:.3f}" if entry["ratio"] else "-"
        lines.append(f"{entry['length']:>6} {entry['count']:>6}{cells}{best:>16}{ratio:>8}")
    if case["ratio_to_best_peer"] is not None:
        lines.append(
            f"ratio to the best peer, geometric mean weighted by occurrence: "
            f"{case['ratio_to_best_peer']:.3f}; lowest {case['lowest_ratio']:.3f}; at least 1 at "
            f"{100 * case['share_of_lengths_at_least_1']:.0f} % of the lengths")
        lines.append("ratio to each: " + ", ".join(
            f"{ALL[peer].label} {ratio:.3f}" for peer, ratio in case["ratio_to"].items()))
    return "\n".join(lines)


def plot(result, stem):
    """Draws stem.svg and stem.png: for each case the time per token over the length with 95 %
    intervals, how often each length occurs, and below the ratio to the best peer."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = result["experiment"]  # same data, same bytes
    import matplotlib.pyplot as plt
    cases = result["cases"]
    rated = result["ratio_to_best_peer"] is not None
    figure, axes = plt.subplots(
        1 + rated, len(cases), figsize=(7 * len(cases), 5 + 2 * rated), squeeze=False, sharex=True,
        height_ratios=(3, 1)[:1 + rated], layout="constrained")
    figure.suptitle(f"{result['title']}\n{result['machine']['cpu']}")
    for case, column in zip(cases, axes.T):
        draw_times(column[0], case)
        if rated:
            draw_ratios(column[1], case)
        column[-1].set_xlabel("length (tokens)")
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(stem.with_suffix(".png"), dpi=120)
    plt.close(figure)


def draw_times(axis, case):
    entries = case["lengths"]
    lengths = [entry["length"] for entry in entries]
    for system in entries[0]["systems"]:
        look = ALL[system]
        def values(key):
            return [entry["systems"][system][key] / entry["length"] for entry in entries]
        axis.plot(lengths, values("median"), color=look.colour, label=look.label, marker=".",
                  linewidth=2.2 if look.label == "nimble" else 1.3)
        axis.fill_between(lengths, values("low"), values("high"), color=look.colour, alpha=0.2)
    axis.set_title(case["name"])
    axis.set_ylabel("µs per token")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.legend()
    occurrences = axis.twinx()
    occurrences.bar(lengths, [entry["count"] for entry in entries], color="#000000", alpha=0.08)
    occurrences.set_ylim(top=4 * max(1, *(entry["count"] for entry in entries)))
    occurrences.set_yticks([])


def draw_ratios(axis, case):
    entries, colour = case["lengths"], ALL["nimble"].colour
    lengths = [entry["length"] for entry in entries]
    axis.axhline(1, color="#000000", linewidth=1)
    axis.plot(lengths, [entry["ratio"] for entry in entries], color=colour, marker=".")
    axis.fill_between(lengths, [entry["ratio_low"] for entry in entries],
                      [entry["ratio_high"] for entry in entries], color=colour, alpha=0.2)
    axis.set_title("best peer's time / nimble's, weighted mean "
                   f"{case['ratio_to_best_peer']:.2f}", fontsize=10)
    axis.set_ylabel("ratio")
    axis.grid(alpha=0.3)
