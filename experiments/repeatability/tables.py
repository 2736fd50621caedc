"""What repeatability says of interleaved rounds: seeds by length, rates of verdicts by rule."""

import math

import numpy as np

from experiments.harness import compare, statistics
from experiments.studies.output import bar_lines, make_bar, markdown_table, percent

MOST_APART, MOST_FALSE, LEAST_FOUND = 0.03, 0.05, 0.80
PLANTED = 0.03
# How a difference of a pair is told. The bars are of "compare", what experiments/compare does unasked:
# a user's verdict is to be right. Its rule asks that a difference be beyond 2 %, since two processes
# of one executable do lie apart, by where their memory happens to be; the others tell that, too, and
# stand beside it.
BAR_RULE = "compare"
RULES = {"compare": f"experiments/compare: its interval lies beyond {compare.PRACTICAL:g} %",
         "any": "experiments/compare --practical 0: its interval excludes 0",
         "paired": "the ratio's interval of the rounds, paired, excludes 1"}


def seeds(rounds_by_length, counts):
    """rounds_by_length: {length: {"first": µs of rounds, "second": …}}; counts: {length:
    occurrences}. Returns {"lengths": [{length, first, second, ratio, low, high}], "mean", "worst"}:
    ratio is the second's time over the first's, mean their geometric mean by occurrence, worst the
    largest distance from 1 at any length."""
    rows = []
    for length, rounds in sorted(rounds_by_length.items()):
        systems, comparison = statistics.summarize(rounds, ["second"], "first")
        rows.append({"length": length, "count": counts.get(length, 0),
                     "first": systems["first"]["median"], "second": systems["second"]["median"],
                     "ratio": comparison["ratio"], "low": comparison["ratio_low"],
                     "high": comparison["ratio_high"]})
    weights = [row["count"] for row in rows]
    if not any(weights):
        weights = [1] * len(rows)
    return {"lengths": rows,
            "mean": statistics.geometric_mean([row["ratio"] for row in rows], weights),
            "worst": max(distance(row["ratio"]) for row in rows)}


def distance(ratio):
    """How much longer the slower one takes."""
    return math.exp(abs(math.log(ratio))) - 1


def case_of(name, length, system):
    return {"name": name, "lengths": [{"length": length, "count": 1,
                                       "systems": {"nimble": system}}]}


def verdicts(rounds, length):
    """rounds: {"first", "second"} of one pair. Returns {rule: "slower", "faster" or "-"}, of the
    second, and the effect that was found under "effect"."""
    systems, comparison = statistics.summarize(rounds, ["second"], "first")
    old, new = ({"pair": case_of("pair", length, systems[one])} for one in ("first", "second"))
    found = {}
    for rule, practical in (("compare", compare.PRACTICAL), ("any", 0.0)):
        row = compare.compare(old, new, None, None, practical)[0]
        found[rule] = row[5]
        found["effect"] = row[2] / 100
    low, high = comparison["ratio_low"], comparison["ratio_high"]
    found["paired"] = "slower" if low > 1 else "faster" if high < 1 else "-"
    return found


def rates(pairs):
    """pairs: [{"kind": "same" or "planted", …verdicts}]. Returns {rule: {"false": share of the same
    that were called different, "found": share of the planted that were called slower}}."""
    same = [pair for pair in pairs if pair["kind"] == "same"]
    planted = [pair for pair in pairs if pair["kind"] == "planted"]
    return {rule: {"false": sum(pair[rule] != "-" for pair in same) / len(same),
                   "found": sum(pair[rule] == "slower" for pair in planted) / len(planted)}
            for rule in RULES}


def bars(models):
    """models: {title: {"seeds", "rates"}}."""
    out = []
    for title, model in models.items():
        seeds, rate = model["seeds"], model["rates"][BAR_RULE]
        out += [make_bar(f"{title}: two seeds apart, mean of the lengths", distance(seeds["mean"]),
                         most=MOST_APART),
                make_bar(f"{title}: two seeds apart, the worst length", seeds["worst"],
                         most=MOST_APART),
                make_bar(f"{title}: false positives", rate["false"], most=MOST_FALSE),
                make_bar(f"{title}: planted {percent(PLANTED)} found", rate["found"],
                         least=LEAST_FOUND)]
    return out


def markdown(result):
    models = result["models"]
    lines = ["# Repeatability", "",
             f"{result['machine']['cpu']}. Each model is tuned twice, {result['budget']} with each "
             "of two seeds, into two databases; the executables run interleaved, each in a process "
             "of its own. A ratio is the second's time over the first's, with its 95 % interval; "
             "means are geometric, each length as often as it occurs.", ""]
    for title, model in models.items():
        lines += [f"## {title}, {model['threads']} thread{'s' if model['threads'] > 1 else ''}", ""]
        lines += markdown_table(
            ["length", "first seed, µs", "second seed, µs", "ratio"],
            [[str(row["length"]), f"{row['first']:.0f}", f"{row['second']:.0f}",
              f"{row['ratio']:.3f} ({row['low']:.3f} – {row['high']:.3f})"]
             for row in model["seeds"]["lengths"]]
            + [["all", "", "", f"{model['seeds']['mean']:.3f}"]])
        effects = [pair["effect"] for pair in model["pairs"] if pair["kind"] == "same"]
        planted = [pair["effect"] for pair in model["pairs"] if pair["kind"] == "planted"]
        lines += ["", f"{len(effects)} pairs of the first executable with itself, and {len(planted)}"
                  f" in which one of the two spins for {percent(PLANTED)} of a run behind each run; "
                  f"{result['effort']['rounds']} rounds a pair. Without it a pair is "
                  f"{percent(float(np.median(np.abs(effects))), 2)} apart (median; at most "
                  f"{percent(max(map(abs, effects)), 1)}); with it "
                  f"{percent(float(np.median(planted)), 1, '+')} is found.", ""]
        lines += markdown_table(
            ["a difference is called one where", "of equal ones", "of planted ones"],
            [[text, percent(model["rates"][rule]["false"], 1),
              percent(model["rates"][rule]["found"], 1)] for rule, text in RULES.items()])
        lines += [""]
    lines += [f"It took {result['seconds'] / 60:.0f} minutes. Bars (of pairs, by "
              "experiments/compare as it is):", ""]
    lines += bar_lines(result["bars"], 1)
    return "\n".join(lines) + "\n"


def draw(figure, result):
    models = result["models"]
    figure.set_size_inches(11, 4 * len(models))
    axes = figure.subplots(len(models), 2, squeeze=False)
    for (title, model), (left, right) in zip(models.items(), axes):
        rows = model["seeds"]["lengths"]
        ratios = [row["ratio"] for row in rows]
        left.errorbar([row["length"] for row in rows], ratios, fmt="o", color="#0072B2", capsize=2,
                      yerr=[[max(0.0, r - row["low"]) for r, row in zip(ratios, rows)],
                            [max(0.0, row["high"] - r) for r, row in zip(ratios, rows)]])
        left.axhspan(1 / (1 + MOST_APART), 1 + MOST_APART, color="#009E73", alpha=0.15)
        left.set_title(f"{title}: second seed over first", fontsize=10)
        left.set_xlabel("length")
        left.grid(alpha=0.3)
        for kind, colour, label in (("same", "#0072B2", "with itself"),
                                    ("planted", "#D55E00", f"planted {percent(PLANTED)}")):
            right.hist([100 * pair["effect"] for pair in model["pairs"] if pair["kind"] == kind],
                       bins=np.arange(-6, 9.01, 0.5), color=colour, alpha=0.6, label=label)
        right.axvline(compare.PRACTICAL, color="#000000", linewidth=1)
        right.axvline(-compare.PRACTICAL, color="#000000", linewidth=1)
        right.set_xlabel("effect found in a pair, %")
        right.legend(fontsize=8)
