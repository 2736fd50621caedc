"""What Figure 3 says of the bursts of nimble-residue-bench: latency over the static kernel's."""

import numpy as np

from experiments.harness.statistics import geometric_mean
from experiments.studies.output import bar_lines, make_bar, markdown_table

# As the benchmark calls them → the figure's words; the last two are tail modes beyond the paper.
VARIANTS = {"8": "dispatch/8", "4": "dispatch/4", "2": "dispatch/2", "1": "no dispatch",
            "even": "even tiles", "masked": "masked tail"}
MOST_OVER = 0.03
RESAMPLES = 1000


def layer_name(layer):
    activation = f" + {layer['activation']}" if layer["activation"] else ""
    return f"{layer['k']} → {layer['n']}{activation}"


def relative(bursts, variant):
    """Returns a variant's time over the static kernel's: the median of the rounds' ratios. Bursts
    of a round lie close in time."""
    return float(np.median(np.asarray(bursts[variant]) / np.asarray(bursts["static"])))


def interval(entries, variant):
    """Returns the 95 % interval of a layer's mean over the lengths, rounds resampled."""
    ratios = np.array([np.asarray(e["us"][variant]) / np.asarray(e["us"]["static"])
                       for e in entries])
    picks = np.random.default_rng(0).integers(0, ratios.shape[1], (RESAMPLES, ratios.shape[1]))
    means = np.exp(np.log(np.median(ratios[:, picks], axis=2)).mean(axis=0))
    return [float(v) for v in np.percentile(means, (2.5, 97.5))]


def summarise(layers):
    """Returns for each layer and variant the relative latency by length, its geometric mean and
    that mean's interval; and of each variant the mean over the layers."""
    rows, means = [], {}
    for layer in layers:
        entries = layer["lengths"]
        found = {}
        for variant in VARIANTS:
            by_length = [relative(e["us"], variant) for e in entries]
            found[variant] = {"by_length": by_length,
                              "mean": geometric_mean(by_length, [1] * len(by_length)),
                              "interval": interval(entries, variant),
                              "worst": max(by_length)}
        rows.append({"name": layer_name(layer), "config": layer["config"],
                     "lengths": [e["m"] for e in entries],
                     "static_us": [float(np.median(e["us"]["static"])) for e in entries],
                     "variants": found})
    for variant in VARIANTS:
        values = [row["variants"][variant]["mean"] for row in rows]
        means[variant] = geometric_mean(values, [1] * len(values))
    return rows, means


def bars(means):
    return [make_bar("full dispatch over static, mean of all layers and lengths", means["8"] - 1,
                     most=MOST_OVER)]


def markdown(result):
    lines = [
        "# Figure 3: kernels for residues", "",
        f"BERT's dense layers, tiles of 8 rows, one schedule, {result['machine']['cpu']}, "
        f"{result['threads']} thread{'s' if result['threads'] > 1 else ''}. Latency over that of a "
        "kernel compiled for the length alone, geometric mean over the lengths 121 to 128 with its "
        "95 % interval, and the worst length. dispatch/k: k kernels, chosen by the length's "
        "remainder; no dispatch: one kernel that tells its tail's size at run time. The last two "
        "are tail modes beyond the paper's: rows split evenly over the tiles, and full tiles whose "
        "surplus rows are discarded.", ""]
    table = []
    for row in result["layers"]:
        cells = []
        for variant in VARIANTS:
            v = row["variants"][variant]
            low, high = v["interval"]
            cells.append(f"{v['mean']:.3f} ({low:.3f} – {high:.3f}), worst {v['worst']:.3f}")
        table.append([row["name"], *cells])
    table.append(["mean", *(f"{result['means'][variant]:.3f}" for variant in VARIANTS)])
    lines += markdown_table(["layer", *VARIANTS.values()], table)
    lines += ["", "By length, mean over the layers:", ""]
    layers = result["layers"]

    def mean_at(variant, i):
        values = [row["variants"][variant]["by_length"][i] for row in layers]
        return geometric_mean(values, [1] * len(values))
    lines += markdown_table(
        ["length", *VARIANTS.values(), "static µs of each layer"],
        [[str(m), *(f"{mean_at(v, i):.3f}" for v in VARIANTS),
          ", ".join(f"{row['static_us'][i]:.0f}" for row in layers)]
         for i, m in enumerate(layers[0]["lengths"])])
    lines += ["", "The paper (ARM, 16 cores) reads full dispatch as nearly identical to static, and "
              "fewer kernels as slower.", "", "Bar:", ""]
    lines += bar_lines(result["bars"], 1, sign="+")
    return "\n".join(lines) + "\n"


def draw(figure, result):
    figure.set_size_inches(11, 4.5)
    axis = figure.subplots()
    axis.set_title(f"BERT's dense layers at lengths 121 to 128\n{result['machine']['cpu']}",
                   fontsize=10)
    colours = ("#D55E00", "#E69F00", "#F0E442", "#999999", "#0072B2", "#56B4E9")
    at = np.arange(len(result["layers"]))
    width = 0.8 / len(VARIANTS)
    for i, (variant, label) in enumerate(VARIANTS.items()):
        found = [row["variants"][variant] for row in result["layers"]]
        means = [v["mean"] for v in found]
        errors = [[max(0.0, m - v["interval"][0]) for m, v in zip(means, found)],
                  [max(0.0, v["interval"][1] - m) for m, v in zip(means, found)]]
        axis.bar(at + (i - (len(VARIANTS) - 1) / 2) * width, means, 0.95 * width, yerr=errors,
                 color=colours[i], label=label, capsize=2)
    axis.axhline(1, color="#000000", linewidth=1)
    axis.set_xticks(at, [row["name"] for row in result["layers"]])
    axis.set_ylabel("latency over the static kernel's")
    axis.set_ylim(bottom=0.9)
    axis.grid(alpha=0.3, axis="y")
    axis.legend(ncols=3, fontsize=8)
