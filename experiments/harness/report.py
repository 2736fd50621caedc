"""The outputs of an experiment: result file, tables, plots."""

import json
import os

from experiments.harness.errors import ExperimentError
from experiments.harness.experiment import ROOT
from experiments.harness.systems import ALL, NIMBLE

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


def read_partial(path, settings):
    """Returns what an interrupted run has left, of write_json; it tells its own "settings", which
    must be these."""
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ExperimentError(f"{path}: not JSON ({error}); run without --resume") from None
    changed = [name for name, value in settings.items()
               if saved.get("settings", {}).get(name) != value]
    if changed:
        raise ExperimentError(f"{path}: made with other settings ({', '.join(changed)}); run "
                              "without --resume")
    return saved


def write_all(result, stem, more=""):
    """Writes stem.json, .md (with `more` behind it), .svg and .png."""
    write_json(stem.with_name(stem.name + ".json"), result)
    stem.with_name(stem.name + ".md").write_text(markdown(result) + more, encoding="utf-8")
    plot(result, stem)


def systems_of(case):
    """Returns the systems that were timed at one length at least, in the order of the run."""
    return list(dict.fromkeys(name for entry in case["lengths"] for name in entry["systems"]))


def table(case):
    """Returns one case as text: µs per token (± half the 95 % interval, in percent), ratios."""
    systems = systems_of(case)
    labels = [ALL[system].label for system in systems]
    width = max(15, *(len(label) + 2 for label in labels))
    best_width = max(16, width)  # its name is one of the labels
    lines = [f"{case['name']}: µs per token, median ± half its 95 % interval",
             f"{'length':>6} {'count':>6}" + "".join(f"{label:>{width}}" for label in labels)
             + f"{'best peer':>{best_width}}{'ratio':>8}"]
    for entry in case["lengths"]:
        cells = ""
        for system in systems:
            value = entry["systems"].get(system)
            text = "-"
            if value:
                half = 50 * (value["high"] - value["low"]) / value["median"]
                text = f"{value['median'] / entry['length']:.1f} ±{half:.0f} %"
            cells += f"{text:>{width}}"
        best = ALL[entry["best_peer"]].label if entry["best_peer"] else "-"
        ratio = f"{entry['ratio']:.3f}" if entry["ratio"] else "-"
        lines.append(f"{entry['length']:>6} {entry['count']:>6}{cells}{best:>{best_width}}{ratio:>8}")
    totals = case.get("us_per_token", {})
    if totals:
        lines.append(f"{'all':>6} {'':>6}" + "".join(
            f"{f'{totals[system]:.1f}' if system in totals else '-':>{width}}"
            for system in systems))
    if case["ratio_to_best_peer"] is not None:
        lines.append(
            f"ratio to the best peer, geometric mean weighted by occurrence: "
            f"{case['ratio_to_best_peer']:.3f}; lowest {case['lowest_ratio']:.3f}; at least 1 at "
            f"{100 * case['share_of_lengths_at_least_1']:.0f} % of the lengths")
        lines.append("ratio to each: " + ", ".join(
            f"{ALL[peer].label} {ratio:.3f}" for peer, ratio in case["ratio_to"].items()))
    lines += [f"{ALL[system].label}: {error}" for system, error in case.get("errors", {}).items()]
    return "\n".join(lines)


def markdown(result):
    """Returns the result as a page: µs per token by system and case, what failed, what ran."""
    cases = result["cases"]
    rows = dict.fromkeys(name for case in cases for name in (*systems_of(case), *case["errors"]))
    ordered = sorted(rows, key=lambda name: name not in NIMBLE)  # nimble first, as in the paper
    lines = [f"# {result['title']}", "",
             f"`{result['command']}`, {result['date'][:10]}, {result['machine']['cpu']}. µs per "
             "token: total time by total tokens, each length as often as it occurs. In brackets "
             "the geometric mean of the time over nimble's, weighted alike.", "",
             "| | " + " | ".join(case["name"] for case in cases) + " |",
             "|---" + "|---:" * len(cases) + "|"]
    notes = []
    for name in ordered:
        cells = []
        for case in cases:
            cell = f"{case['us_per_token'][name]:.1f}" if name in case["us_per_token"] else "–"
            ratio = case.get("ratio_to", {}).get(name)
            if ratio:
                cell += f" ({ratio:.2f})"
            if name in case["errors"]:
                note = f"{ALL[name].label}: {case['errors'][name]}"
                if note not in notes:
                    notes.append(note)
                cell += f" [{notes.index(note) + 1}]"
            cells.append(cell)
        lines.append(f"| {ALL[name].label} | " + " | ".join(cells) + " |")
    lines.append("| best peer / nimble | " + " | ".join(
        f"{case['ratio_to_best_peer']:.3f}, lowest {case['lowest_ratio']:.3f}"
        if case["ratio_to_best_peer"] else "–" for case in cases) + " |")
    lines += [""] + [f"[{number}] {note}." for number, note in enumerate(notes, 1)]
    agree = result.get("agreement") or (
        f"Results agree with PyTorch's within {result['tolerance']:g}.")
    lines += ["", f"Timed: {result['timed']}. {agree}", ""]
    if "within" in result["effort"]:
        lines += [f"Within {result['effort']['within']} of measuring: " + ", ".join(
            f"{len(case['lengths'])} of {result['lengths_of_workload']} lengths ({case['name']})"
            for case in cases) + ". Every sentence counts for the nearest measured length.", ""]
    if how := tuning_text(result):
        lines += [how, ""]
    if result["tuned_for_lengths"]:
        lines += ["nimble was tuned for other lengths than those reported: "
                  f"{spans(result['tuned_for_lengths'])}.", ""]
    lines += [f"- {ALL[name].label} {info['version']}: {info['settings']}"
              for name, info in result["systems"].items()]
    return "\n".join(lines) + "\n"


def tuning_text(result):
    """Returns where nimble's schedules come from; of a run without nimble nothing."""
    if not result.get("executables"):
        return ""
    if result.get("untuned"):
        return "nimble's schedules are the default ones: it was not tuned."
    if result.get("tuning_budget"):
        return f"nimble was tuned for {result['tuning_budget']} ahead of it, each of its models."
    return "nimble's schedules are what the tuning database held: nothing was tuned for this run."


def spans(numbers):
    """Returns numbers in short: every second one from 20 to 100 as “20, 22, …, 100”."""
    texts = [str(number) for number in numbers]
    return ", ".join(texts if len(texts) <= 6 else [*texts[:2], "…", texts[-1]])


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
        if case["ratio_to_best_peer"] is not None:
            draw_ratios(column[1], case)
        column[-1].set_xlabel("length (tokens)")
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(stem.with_suffix(".png"), dpi=120)
    plt.close(figure)


def draw_times(axis, case):
    for system in systems_of(case):
        look = ALL[system]
        entries = [entry for entry in case["lengths"] if system in entry["systems"]]
        lengths = [entry["length"] for entry in entries]

        def values(key):
            return [entry["systems"][system][key] / entry["length"] for entry in entries]
        axis.plot(lengths, values("median"), color=look.colour, label=look.label, marker=".",
                  linestyle=look.line, linewidth=2.2 if look.module == "nimble" else 1.3)
        axis.fill_between(lengths, values("low"), values("high"), color=look.colour, alpha=0.2)
    for kind, line in (("arithmetic", ":"), ("memory", "-.")):
        entries = [entry for entry in case["lengths"]
                   if entry.get("limits", {}).get(f"{kind}_us") is not None]
        if entries:
            axis.plot([entry["length"] for entry in entries],
                      [entry["limits"][f"{kind}_us"] / entry["length"] for entry in entries],
                      color="#000000", linestyle=line, linewidth=1, label=f"{kind} limit")
    axis.set_title(case["name"])
    axis.set_ylabel("µs per token")
    axis.set_ylim(bottom=0, top=readable_top(case))
    axis.grid(alpha=0.3)
    axis.legend()
    lengths = [entry["length"] for entry in case["lengths"]]
    entries = case["lengths"]
    occurrences = axis.twinx()
    occurrences.bar(lengths, [entry["count"] for entry in entries], color="#000000", alpha=0.08)
    occurrences.set_ylim(top=4 * max(1, *(entry["count"] for entry in entries)))
    occurrences.set_yticks([])


def readable_top(case):
    """Returns the top of the time axis: systems that are ten times slower than the typical one go
    out of the picture, or nothing of the others would be seen."""
    highest = {}
    for system in systems_of(case):
        highest[system] = max(entry["systems"][system]["high"] / entry["length"]
                              for entry in case["lengths"] if system in entry["systems"])
    typical = sorted(highest.values())[(len(highest) - 1) // 2]
    return 1.05 * max(value for value in highest.values() if value <= 10 * typical)


def draw_ratios(axis, case):
    entries = [entry for entry in case["lengths"] if entry["ratio"] is not None]
    colour = ALL["nimble"].colour
    lengths = [entry["length"] for entry in entries]
    axis.axhline(1, color="#000000", linewidth=1)
    axis.plot(lengths, [entry["ratio"] for entry in entries], color=colour, marker=".")
    axis.fill_between(lengths, [entry["ratio_low"] for entry in entries],
                      [entry["ratio_high"] for entry in entries], color=colour, alpha=0.2)
    axis.set_title("best peer's time / nimble's, weighted mean "
                   f"{case['ratio_to_best_peer']:.2f}", fontsize=10)
    axis.set_ylabel("ratio")
    axis.grid(alpha=0.3)
