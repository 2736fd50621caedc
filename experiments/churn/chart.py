"""The table and the plot of `experiments/run churn`."""

from experiments.harness.systems import ALL
from experiments.studies.output import markdown_table

MEGABYTE = 1 << 20


def bar_line(bar):
    value = "-" if bar["value"] is None else f"{bar['value']:.2f}"
    return (f"- {bar['name']}: {value}, bar {bar['most']:g}: "
            f"{'kept' if bar['kept'] else 'not kept'}")


def markdown(result):
    """Returns the page."""
    effort, control = result["effort"], result["control"]
    lines = [
        "# Shape churn", "",
        f"{result['title']}: {effort['visits']} shapes (batch {result['batches'][0]}–"
        f"{result['batches'][1]} × length {result['lengths'][0]}–{result['lengths'][1]}, seed "
        f"{effort['seed']}), {effort['threads']} threads, {result['machine']['cpu']}. A ratio is a "
        "call's time over the steady median of its shape in the same system. The fixed shape is "
        f"{control[0]} × {control[1]}. Memory is resident: at the start of the visits, at their "
        f"end, at its peak between. Each system had {effort['minutes']:g} minutes.", ""]
    rows = []
    for name, s in result["systems"].items():
        first, memory = s["first_ratio"], s["memory"]
        rows.append([
            ALL[name].label, f"{s['visits']} ({s['first_visits']} new)",
            f"{s['latency_us']['p50'] / 1e3:.1f}", f"{s['latency_us']['p99'] / 1e3:.1f}",
            f"{first['p50']:.2f}", f"{first['p95']:.2f}", f"{first['p99']:.2f}",
            f"{first['max']:.2f}", f"{s['first_extra_us']['p50'] / 1e3:.2f}",
            f"{s['first_extra_us']['p99'] / 1e3:.2f}", f"{s['spread']:.2f}",
            f"{s['control_spread']:.2f}", f"{s['spread_over_control']:.2f}",
            f"{s['first_run_us'] / 1e3:.1f}", f"{memory['warm'] / MEGABYTE:.0f}",
            f"{memory['held'] / MEGABYTE:.0f}", f"{memory['peak'] / MEGABYTE:.0f}"])
    lines += markdown_table(
        ["", "visits", "p50 ms", "p99 ms", "first visit, ratio p50", "p95", "p99", "max",
         "first visit's extra ms p50", "p99", "all visits, ratio p99 / p50", "fixed shape's",
         "quotient", "first call of the process ms", "MiB at first", "at the end", "peak"], rows)
    if result["failed"]:
        lines += ["", *(f"- {ALL[name].label}: {error}"
                        for name, error in result["failed"].items())]
    if result["bars"]:
        lines += ["", "nimble's bars:", "", *(bar_line(bar) for bar in result["bars"])]
    return "\n".join(lines) + "\n"


def draw(figure, result):
    """Left: the share of first visits whose ratio is beyond x. Right: memory."""
    import numpy as np

    from experiments.churn import visits
    figure.set_size_inches(12, 5)
    figure.suptitle(f"{result['title']}\n{result['machine']['cpu']}")
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    shapes = [tuple(shape) for shape in result["shapes"]]
    found = result["systems"]
    for name, s in found.items():
        steady = {tuple(shape): np.median(values) for shape, values in s["steady_us"]}
        reached = shapes[:len(s["times_us"])]
        first = np.array(visits.first_visits(reached))
        ratios = np.sort((np.array(s["times_us"]) / [steady[shape] for shape in reached])[first])
        beyond = 1 - np.arange(len(ratios)) / len(ratios)
        left.step(ratios, beyond, where="post", color=ALL[name].colour, label=ALL[name].label,
                  linewidth=2.2 if name == "nimble" else 1.3)
    left.axvline(1.3, color="#000000", linewidth=0.8, linestyle=":")
    left.axhline(0.05, color="#000000", linewidth=0.8, linestyle=":")
    left.set(xscale="log", yscale="log", xlabel="time of a shape's first visit / its steady median",
             ylabel="share of first visits that take longer")
    left.grid(alpha=0.3)
    left.legend()
    names = list(found)
    for offset, key, label, alpha in ((-0.27, "warm", "at first", 0.4), (0, "held", "at the end",
                                                                        0.7), (0.27, "peak", "peak",
                                                                               1.0)):
        right.barh([i + offset for i in range(len(names))],
                   [found[name]["memory"][key] / MEGABYTE for name in names], height=0.25,
                   color=[ALL[name].colour for name in names], alpha=alpha, label=label)
    right.set_yticks(range(len(names)), [ALL[name].label for name in names])
    right.invert_yaxis()
    right.set_xlabel("resident memory, MiB (at first, at the end, peak)")
    right.grid(alpha=0.3, axis="x")
