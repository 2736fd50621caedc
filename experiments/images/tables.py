"""What the measured sizes say of each network: ratios, bars, the page, the plot."""

from experiments.harness import statistics
from experiments.harness.systems import ALL, IMAGE_PEERS
from experiments.images import kernels
from experiments.images.networks import EXACT, LEAST_MEAN, LEAST_P5, MOST_OVER_LIMIT, NETWORKS, OWN, SINGLE
from experiments.roofline.tables import MOST_OF_PEAK, milliseconds
from experiments.studies import output
from experiments.studies.output import decimal, make_bar, markdown_table, percent

MAIN, DEFAULT = "nimble", "nimble_default"
SHOWN = (MAIN, DEFAULT, *IMAGE_PEERS)
# By what --winograd adds: tiles of so many pixels along an axis. They are in no other table.
WINOGRAD = {"nimble_winograd_2": 2, "nimble_winograd_4": 4}
LOW_PERCENTILE = 5
WORST = 6  # kernels of a network that the page lists; the result file has all
MEGABYTE = 1 << 20


def key_of(size):
    return "x".join(map(str, size))


def summarise_size(size, rounds, figures):
    """Returns the entry of a size. rounds: {system: [median µs of each round]}; figures: {system:
    of its result}."""
    peers = [name for name in IMAGE_PEERS if name in rounds]
    systems, comparison = statistics.summarize(rounds, peers, MAIN)
    for name, value in systems.items():
        value.update(figures[name])
    best = comparison["best_peer"]
    return {"size": list(size), "systems": systems, **comparison,
            "default_ratio": (systems[best]["median"] / systems[DEFAULT]["median"]
                              if best and DEFAULT in systems else None)}


def spread(ratios):
    """Returns the geometric mean and the 95 % interval of it (`low`, `high`), where other sizes might
    have been drawn; the 5th percentile, the lowest of the ratios, and the share of those that are 1
    or more; None of none."""
    import numpy as np
    if not ratios:
        return None
    logs = np.log(np.array(ratios))
    picks = np.random.default_rng(0).integers(0, len(logs), (statistics.RESAMPLES, len(logs)))
    low, high = np.exp(np.percentile(logs[picks].mean(axis=1), statistics.INTERVAL))
    return {"mean": statistics.geometric_mean(ratios, [1] * len(ratios)),
            "low": float(low), "high": float(high),
            "p5": float(np.percentile(ratios, LOW_PERCENTILE)), "lowest": min(ratios),
            "share": sum(ratio >= 1 for ratio in ratios) / len(ratios)}


def summarise(name, record, peak, levels):
    """Returns what the result says of a network. record: what program.py keeps of it; peak:
    multiply-adds of f32 in operations a second; levels: what kernels.memories says."""
    network, done = NETWORKS[name], record["done"]
    own = done.get(key_of(OWN))
    others = [entry for key, entry in done.items() if key != key_of(OWN)]
    limit = 1e6 * record["flops"] / peak if record["flops"] else None
    rows = kernels.against_limits(record["calls"], peak, levels)
    found = {
        "name": name, "title": network.title, "any_size": network.any_size, "least": network.least,
        "failure": record["failure"], "errors": record["errors"], "tuning": record["tuning"],
        "flops": record["flops"], "arithmetic_us": limit, "own": own, "sizes": others,
        "of_arithmetic": None, "best_of_arithmetic": None,
        "kernels": rows, "of_kernels": kernels.summarise(rows) if rows else None,
        "ratios": spread([e["ratio"] for e in others if e["ratio"] is not None]),
        "default_ratios": spread([e["default_ratio"] for e in others
                                  if e["default_ratio"] is not None])}
    if own and limit:
        found["of_arithmetic"] = limit / own["systems"][MAIN]["median"]
        if own["best_peer"]:
            found["best_of_arithmetic"] = limit / own["systems"][own["best_peer"]]["median"]
    return found


def bars(found):
    """Returns the bars of all networks. One that nimble failed on, at one size even, keeps none."""
    out = []
    for network in found:
        title, own, ratios = network["title"], network["own"], network["ratios"]
        failed = network["failure"] is not None

        def bar(name, value, **limit):
            out.append(make_bar(name, value, not failed, **limit))
        bar(f"{title} at {sides(OWN)}: best peer / nimble", own and own["ratio"],
            least=network["least"])
        if network["any_size"] and (ratios or failed):
            bar(f"{title} over sizes: geometric mean of best peer / nimble",
                ratios and ratios["mean"], least=network["least"])
            bar(f"{title} over sizes: {LOW_PERCENTILE}th percentile of best peer / nimble",
                ratios and ratios["p5"], least=LEAST_P5)
        if network["of_kernels"]:
            bar(f"{title}: kernels that take more than {MOST_OVER_LIMIT} times their limit",
                network["of_kernels"]["beyond"], most=0, count=True)
    return out


def doubts(found):
    """Returns what shows that the peak is no limit: something else ran while it was measured, or a
    system multiplies less than it should."""
    out = []
    for network in found:
        for what, share in (("nimble", network["of_arithmetic"]),
                            ("a peer", network["best_of_arithmetic"])):
            if share is not None and share > MOST_OF_PEAK:
                out.append(f"{what} reaches {percent(share)} of it in {network['title']}")
    return out


def sides(size):
    return " × ".join(map(str, size))


def median_of(entry, system):
    value = entry["systems"].get(system) if entry else None
    return value and value["median"]


def ratio_cell(entry):
    if not entry or entry["ratio"] is None:
        return "–"
    return f"{entry['ratio']:.2f} ({entry['ratio_low']:.2f} – {entry['ratio_high']:.2f})"


def own_table(found, systems):
    rows = []
    for network in found:
        own = network["own"]
        best = ALL[own["best_peer"]].label if own and own["best_peer"] else "–"
        rows.append([
            network["title"], *(milliseconds(median_of(own, name)) for name in systems), best,
            ratio_cell(own), decimal(own and own["default_ratio"]), decimal(network["least"]),
            milliseconds(network["arithmetic_us"]), percent(network["of_arithmetic"])])
    return markdown_table(
        ["", *(f"{ALL[name].label}, ms" for name in systems), "best peer", "best peer / nimble",
         "by default schedules", "bar", "arithmetic limit, ms", "nimble, of the limit"], rows)


def sizes_table(found):
    def cells(spread):
        mean = "–" if spread is None else (f"{spread['mean']:.2f} ({spread['low']:.2f} – "
                                           f"{spread['high']:.2f})")
        return [mean, *(decimal(spread and spread[key]) for key in ("p5", "lowest"))]
    return markdown_table(
        ["", "sizes", "geometric mean", "5th percentile", "lowest", "at least 1", "bar",
         "default schedules: geometric mean", "5th percentile", "lowest"],
        [[network["title"], str(len(network["sizes"])), *cells(network["ratios"]),
          percent(network["ratios"] and network["ratios"]["share"]), decimal(network["least"]),
          *cells(network["default_ratios"])] for network in found if network["sizes"]])


def winograd_table(found, systems):
    """A row a network and system of `systems`: times of nimble without and with tiles, and what
    both, and PyTorch in f32, are off by."""
    rows = []
    for network in found:
        entries = [entry for entry in [network["own"], *network["sizes"]] if entry]
        for system in systems:
            both = [entry for entry in entries if system in entry["systems"]]
            if not both:
                continue

            def ratio(entry):
                return median_of(entry, MAIN) / median_of(entry, system)

            def largest(name):
                return f"{max(entry['errors'][name] for entry in both):.1e}"
            own = network["own"] if network["own"] in both else None
            others = spread([ratio(entry) for entry in both if entry is not own])
            rows.append([
                network["title"], ALL[system].label, milliseconds(median_of(own, MAIN)),
                milliseconds(median_of(own, system)), decimal(own and ratio(own)),
                decimal(others and others["mean"]), largest(system), largest(MAIN),
                largest(SINGLE)])
    return markdown_table(
        ["", "", "plain, ms", "by tiles, ms", "plain / by tiles", "over the sizes",
         "largest error", "plain", ALL[SINGLE].label], rows)


def winograd_lines(found):
    systems = [name for name in WINOGRAD
               if any(name in entry["systems"] for network in found
                      for entry in [network["own"], *network["sizes"]] if entry)]
    if not systems:
        return []
    return ["", "Convolutions of 3 × 3 taps by Winograd's tiles (`--winograd`), which no figure above "
            "has: nimble's time without them over that with them, and the largest error of a result "
            f"at any size that was measured, against {ALL[EXACT].label}; the deviation of a result "
            "is 1.", "", *winograd_table(found, systems)]


def kernels_table(found):
    return markdown_table(
        ["", "kernels", f"beyond {MOST_OVER_LIMIT} × the limit", "time in the others",
         "all kernels, × the limits"],
        [[network["title"], str(of["kernels"]), str(of["beyond"]), percent(of["share_within"]),
          decimal(of["over"])] for network in found if (of := network["of_kernels"])])


def worst_table(found):
    return markdown_table(
        ["", "calls", "µs", "limit, µs", "× the limit"],
        [[f"{network['title']}: {row['label']}", f"{row['calls']:g}", decimal(row["us"], 1),
          decimal(row["limit_us"], 1), decimal(kernels.over(row))]
         for network in found for row in network["kernels"][:WORST]
         if kernels.over(row) > MOST_OVER_LIMIT])


def memories_text(levels):
    def one(held, rate):
        beyond = "beyond" if held is None else f"to {held / MEGABYTE:g} MiB"
        return f"{beyond} {rate / 1e9:.0f}"
    return ", ".join(one(*level) for level in levels)


def kernels_lines(result):
    found = result["networks"]
    if not any(network["of_kernels"] for network in found):
        return []
    return ["", f"Kernels at {sides(OWN)} against their limits: the operations of convolutions and "
            "products over the peak, or what a call reads and writes over the bandwidth of reading "
            f"the nearest memory that holds it ({memories_text(result['memories'])} GB/s), "
            "whichever takes longer. Kernels of the same operators and constant extents count as "
            "one.", "", *kernels_table(found), "",
            f"The kernels that lose most, {WORST} of a network at most:", "", *worst_table(found)]


def line_of(bar):
    return output.bar_line(bar, str if bar.get("count") else lambda value: decimal(value, 3),
                           "{:g}".format if "most" in bar else "{:.2f}".format)


def notes(found):
    """Returns a line for each system that failed on a network, and each network that nimble
    failed on."""
    lines = []
    for network in found:
        if network["failure"]:
            lines.append(f"- {network['title']}: {network['failure']}")
        lines += [f"- {network['title']}, {ALL[system].label}: {error}"
                  for system, error in network["errors"].items()]
    return lines


def tuning_text(found):
    told = [f"{network['title']} " + ", ".join(f"{count} {outcome}" for outcome, count in
                                               network["tuning"]["outcomes"].items())
            for network in found if network["tuning"]]
    return ("Kernels by what the database has of them: " + "; ".join(told) + "." if told
            else "nimble ran default schedules alone.")


def markdown(result):
    found, roof = result["networks"], result["roof"]
    timed = [name for name in SHOWN if any(median_of(n["own"], name) for n in found)]
    lines = [
        "# Image networks", "",
        f"{result['machine']['cpu']}, {result['threads']} threads, f32, one image. All systems of "
        "a network run interleaved, each in a process of its own and warm at each size; what is "
        "timed is one call on inputs that are bound outside the clock. “OpenVINO for the size” is "
        "compiled anew for each size, torch.compile once for "
        f"{sides(OWN)} and once for all others. Results "
        f"agree with PyTorch's within {result['tolerance']:g}, where the deviation of a result is "
        "1. The arithmetic limit is the operations of convolutions and products over the peak of "
        f"multiply-adds that `nimble doctor --measure` finds in the same run, "
        f"{roof['flops'] / 1e9:.0f} GFLOP/s at the most of "
        f"{len(roof['measured']['flops'])} times.", ""]
    lines += [f"At {sides(OWN)}; the 95 % interval in brackets:", "", *own_table(found, timed)]
    if any(network["sizes"] for network in found):
        low, high = result["range"]
        lines += ["", f"Best peer / nimble over heights and widths drawn from {low} to {high}, as many "
                  "as there was time for; in brackets the 95 % interval of the mean, if other sizes "
                  "had been drawn:", "", *sizes_table(found)]
    alone = [network["title"] for network in found if not network["any_size"]]
    if alone:
        lines += ["", f"Of {sides(OWN)} alone, by their architecture: {', '.join(alone)}."]
    lines += kernels_lines(result)
    lines += winograd_lines(found)
    lines += ["", tuning_text(found)]
    if any(network["tuning"] for network in found):
        lines[-1] += (" Tuning saw other sizes than those measured, but of the networks that have "
                      "one size.")
    if result["doubts"]:
        lines += ["", f"The peak is in doubt: {'; '.join(result['doubts'])}."]
    failed = notes(found)
    if failed:
        lines += ["", "What failed:", "", *failed]
    lines += ["", *(f"- {ALL[name].label} {info['version']}: {info['settings']}"
                    for name, info in result["systems"].items())]
    lines += ["", "Bars:", ""]
    lines += map(line_of, result["bars"])
    return "\n".join(lines) + "\n"


def draw(figure, result):
    """Left: the ratio at OWN, tuned and by default schedules. Right: its spread over the sizes."""
    found = result["networks"]
    figure.set_size_inches(12, 1.5 + 0.45 * len(found))
    figure.suptitle(f"Image networks: best peer's time / nimble's\n{result['machine']['cpu']}",
                    fontsize=10)
    left, right = figure.subplots(1, 2, sharey=True)
    for row, network in enumerate(found):
        own = network["own"]
        if own and own["ratio"] is not None:
            left.barh(row, own["ratio"], height=0.55, color=ALL[MAIN].colour)
            left.plot([own["ratio_low"], own["ratio_high"]], [row, row], color="#000000",
                      linewidth=1)
        if own and own["default_ratio"] is not None:
            left.plot(own["default_ratio"], row, marker="D", color=ALL[DEFAULT].colour)
        ratios = [e["ratio"] for e in network["sizes"] if e["ratio"] is not None]
        if ratios:
            right.boxplot([ratios], positions=[row], orientation="horizontal", widths=0.55,
                          whis=(LOW_PERCENTILE, 100 - LOW_PERCENTILE), manage_ticks=False)
        if network["default_ratios"]:
            right.plot(network["default_ratios"]["mean"], row, marker="D",
                       color=ALL[DEFAULT].colour)
        for axis in (left, right):
            axis.plot([network["least"]] * 2, [row - 0.4, row + 0.4], color="#0072B2")
    left.set_yticks(range(len(found)), [network["title"] for network in found])
    left.invert_yaxis()
    left.set_xlabel(f"at {sides(OWN)}; diamond: default schedules; blue: the bar")
    right.set_xlabel("over the sizes: quartiles, 5th to 95th percentile; diamond: default "
                     "schedules")
    for axis in (left, right):
        axis.axvline(LEAST_MEAN, color="#000000", linewidth=0.8)
        axis.grid(alpha=0.3, axis="x")
