"""What the method study says of its timings and searches."""

import statistics

import numpy as np

from experiments.harness.statistics import geometric_mean
from experiments.method import choice
from experiments.studies.output import bar_lines, make_bar, markdown_table, percent

MOST_TIME, LEAST_MEAN, LEAST_WORST, MOST_TRIALS = 1 / 6, 0.97, 0.90, 0.5
# The variant that the bars are of: ours. The paper's is beside it.
OURS = "table-64"
LABELS = {"default": "default schedule", "one-1": "one configuration, the search's best (k = 1)",
          "one-10": "one, of k = 10", "one-100": "one, of k = 100 (the paper's)",
          "one-100-mrpc": "one, of k = 100, weighed by MRPC's lengths",
          "table-64": "our table, searched at 64", "table-medoids": "our table, searched at medoids"}


def mean(values):
    return geometric_mean(values, [1] * len(values))


def summarise(products):
    """products: {name: {"lengths", "per_shape_s", "method_s"}}. Returns for each variant its speed
    over the builds for single lengths, as geometric mean of all products and lengths, of those
    inside and outside of the cross-evaluation, and the worst; and the times spent."""
    variants = {}
    names = [v for v in LABELS if any(v in row["variants"] for p in products.values()
                                      for row in p["lengths"])]
    for variant in names:
        rows = [(row["inside"], row["variants"][variant]["speed"]) for p in products.values()
                for row in p["lengths"] if variant in row["variants"]]
        speeds = [speed for _, speed in rows]
        variants[variant] = {
            "mean": mean(speeds), "worst": min(speeds), "count": len(speeds),
            "inside": mean([s for inside, s in rows if inside]),
            "outside": mean([s for inside, s in rows if not inside])}
    method = sum(p["method_s"] for p in products.values())
    single = sum(p["per_shape_s"] for p in products.values())
    return {"variants": variants, "method_s": method, "per_shape_s": single,
            "time": method / single,
            # Of the product that has least of them.
            "lengths": min(len(p["lengths"]) for p in products.values()),
            "outside": min(sum(not row["inside"] for row in p["lengths"])
                           for p in products.values())}


def cost_model(searches):
    """searches: [{"seed", "model": times, "random": times, "correlations"}], times over the
    default's. Returns of each seed after which share of random search's trials the model's is as
    good, the median of these, and the median rank correlation by round."""
    shares = []
    for record in searches:
        target = choice.best_so_far(record["random"], len(record["random"]))[-1]
        reached = choice.trials_to_reach(record["model"], target)
        # What never gets there within its trials counts as all of random search's and more.
        shares.append(None if reached is None else reached / len(record["random"]))
    rounds = {}
    for record in searches:
        for number, value in record["correlations"]:
            rounds.setdefault(number, []).append(value)
    return {"shares": shares,
            "median_share": statistics.median(2.0 if s is None else s for s in shares),
            "trials": [len(record["random"]) for record in searches],
            "best_model": [choice.best_so_far(r["model"], len(r["model"]))[-1] for r in searches],
            "best_random": [choice.best_so_far(r["random"], len(r["random"]))[-1]
                            for r in searches],
            "correlations": {str(number): statistics.median(values)
                             for number, values in sorted(rounds.items())}}


def bars(summary, model, trials):
    """trials: how many each random search is to have. What is compared with one that its budget cut
    short, or at lengths that were measured, says less: so both are asked for."""
    ours = summary["variants"][OURS]
    out = []

    def bar(name, value, count=False, **limit):
        out.append(make_bar(name, value, **limit, count=count))
    bar("time of the method over that of tuning each length", summary["time"], most=MOST_TIME)
    bar("speed over builds for single lengths, geometric mean", ours["mean"], least=LEAST_MEAN)
    bar("the same, the worst product and length", ours["worst"], least=LEAST_WORST)
    bar("lengths that the campaign did not measure", summary["outside"], True,
        least=summary["lengths"] // 2)
    bar("trials until the cost model is where random search ends, over that one's (median of "
        f"{len(model['shares'])} seeds)", model["median_share"], most=MOST_TRIALS)
    bar("trials of the shortest random search", min(model["trials"]), True, least=trials)
    return out


def markdown(result):
    summary, model = result["summary"], result["cost_model"]
    ended = f"A search ends after {result['effort']['max_trials']} trials or with its budget." \
        if result["ended_by_trials"] else "A search ends with its budget."
    lines = [
        "# The paper's method", "",
        f"{result['machine']['cpu']}, one thread, BERT's dense products "
        f"{', '.join(result['effort']['products'])} over a symbolic length. Each is searched at "
        f"{result['searched']}, the best k are evaluated at all sizes and one is kept, as the paper "
        "does, or our table is made. Beside them a build for each length, tuned for this length "
        "alone. All run interleaved; speed is the single length's time over the variant's. Of the "
        f"{summary['lengths']} lengths {summary['outside']} lie outside of what the campaign "
        f"measured. {ended}", "",
        f"The method took {summary['method_s']:.0f} s, tuning each length "
        f"{summary['per_shape_s']:.0f} s: {percent(summary['time'], 1)}. That share is what the "
        "budgets give it (a seventh, unless searches end before theirs); what is found is the speed "
        "that it buys.", ""]
    lines += markdown_table(
        ["", "speed, mean", "lengths inside", "outside", "worst"],
        [[LABELS[name], *(percent(v[key], 1) for key in ("mean", "inside", "outside", "worst"))]
         for name, v in summary["variants"].items()])
    for name, product in result["products"].items():
        lines += ["", f"## {name}", ""]
        shown = [v for v in LABELS if v in product["lengths"][0]["variants"]]
        lines += markdown_table(
            ["length", "single length, µs", *(LABELS[v] for v in shown)],
            [[f"{row['length']}{'' if row['inside'] else ' (outside)'}",
              f"{row['variants']['static']['us']:.0f}",
              *(percent(row["variants"][v]["speed"], 1) for v in shown)]
             for row in product["lengths"]])
        among = [f"{LABELS[v]}: of {about['among']}" for v, about in product["about"].items()
                 if "among" in about]
        lines += ["", f"Cross-evaluated at every size: {'; '.join(among)}."] if among else []
        without = [LABELS[v] for v, about in product["about"].items()
                   if v.startswith("table-") and not about["entries"]]
        lines += ["", f"There is no table, so this is the default schedule: {', '.join(without)}."] \
            if without else []
    lines += ["", "## The cost model", "",
              f"{len(model['shares'])} searches of {result['searched_product']} at "
              f"{result['searched']} with the cost model, and as many at random, of "
              f"{min(model['trials'])} to {max(model['trials'])} trials. Times are over the default "
              "schedule's.", ""]
    lines += markdown_table(
        ["seed", "random's best", "the model's best", "trials to be as good", "of random's"],
        [[str(record["seed"]), f"{random:.3f}", f"{own:.3f}",
          "-" if share is None else str(round(share * count)),
          "not reached" if share is None else percent(share)]
         for record, random, own, share, count in zip(
             result["searches"], model["best_random"], model["best_model"], model["shares"],
             model["trials"])])
    if model["correlations"]:
        lines += ["", "Rank correlation of what was predicted and what was measured, by round "
                  "(median of the seeds): " + ", ".join(
                      f"{number}: {value:.2f}"
                      for number, value in model["correlations"].items()) + "."]
    lines += ["", f"It took {result['seconds'] / 60:.0f} minutes of {result['effort']['within']}. "
              "Bars (of our table):", ""]
    lines += bar_lines(result["bars"], 1, 1)
    return "\n".join(lines) + "\n"


def draw(figure, result):
    figure.set_size_inches(13, 4.2)
    speeds, search, ranks = figure.subplots(1, 3)
    colours = dict(zip(LABELS, ("#999999", "#F0E442", "#E69F00", "#D55E00", "#CC79A7", "#0072B2",
                                "#009E73")))
    names = list(result["summary"]["variants"])
    lengths = [row["length"] for row in next(iter(result["products"].values()))["lengths"]]
    for name in names:
        values = [mean([row["variants"][name]["speed"] for p in result["products"].values()
                        for row in p["lengths"]
                        if row["length"] == length and name in row["variants"]])
                  for length in lengths]
        speeds.plot(lengths, [100 * v for v in values], marker="o", markersize=3,
                    color=colours[name], label=LABELS[name])
    speeds.axhline(100 * LEAST_MEAN, color="#000000", linewidth=0.8)
    speeds.set_xscale("log", base=2)
    speeds.set_xlabel("length")
    speeds.set_ylabel("speed over a build for the length, %")
    speeds.legend(fontsize=6)
    for kind, colour in (("model", "#0072B2"), ("random", "#D55E00")):
        for record in result["searches"]:
            best = np.array(choice.best_so_far(record[kind], len(record[kind])))
            search.plot(np.arange(1, len(best) + 1), best, color=colour, alpha=0.5,
                        label=kind if record is result["searches"][0] else None)
    search.set_xlabel("trials")
    search.set_ylabel("best time over the default's")
    search.legend(fontsize=8)
    correlations = result["cost_model"]["correlations"]
    ranks.plot([int(n) for n in correlations], list(correlations.values()), marker="o",
               color="#0072B2")
    ranks.set_xlabel("round")
    ranks.set_ylabel("rank correlation")
    ranks.set_ylim(-1, 1)
    for axis in (speeds, search, ranks):
        axis.grid(alpha=0.3)
