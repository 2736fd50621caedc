"""What a run in low precision says: bars, limits, errors, similarities."""

from experiments.harness.report import systems_of
from experiments.harness.systems import ALL
from experiments.precision.accuracy import LEAST, worst_ratio
from experiments.precision.models import F32_ROUNDOFF, PRECISIONS
from experiments.studies.output import bar_line, make_bar, markdown_table, percent

AGREEMENT = ("Results are compared with PyTorch's in f64: those of systems in f32 within "
             "{tolerance:g}, those in a narrower type within what PyTorch's f32 is wrong by at that "
             "length, times the quotient of both types' roundoffs (" + ", ".join(
                 f"{one.name}: {one.roundoff / F32_ROUNDOFF:,.0f}" for one in PRECISIONS)
             + "), the largest error and the relative one alike, or " + f"{LEAST:g} roundoffs where "
             "that is more.")


def bars(row, case):
    """Returns the bars of a case of the result (`case`) that its row asks for."""
    kind, name = row.precision.name, case["name"]
    found = [make_bar(f"{name}: the best {kind} peer's time over nimble's, geometric mean",
                      case["ratio_to_best_peer"], least=row.least),
             make_bar(f"{name}: nimble's error over that of the most accurate {kind} peer, at the "
                      "worst length", worst_ratio(case["lengths"], row.precision),
                      most=row.precision.most_error)]
    if row.least_correlation is not None:
        ours = (case["similarities"] or {}).get(row.precision.nimble)
        found.append(make_bar(f"{name}: rank correlation of similarities with those of f32",
                              ours and ours["rank_correlation"], least=row.least_correlation))
    return found


def bar_lines(bars):
    def show(value):
        return "not measured" if value is None else f"{value:.4g}"
    return [bar_line(bar, show, "{:g}".format) for bar in bars]


def per_token(us, entry):
    return "-" if us is None else f"{us / entry['length']:.1f}"


def limits_table(row, case):
    """Returns the times of nimble and the best peer beside the limits, µs per token."""
    lines = []
    for entry in case["lengths"]:
        found, best = entry["systems"], entry["best_peer"]
        ours = found.get(row.precision.nimble, {}).get("median")
        least = entry.get("limits", {"arithmetic_us": None, "memory_us": None})
        larger = max((us for us in least.values() if us is not None), default=None)
        lines.append([
            str(entry["length"]), str(entry["count"]), per_token(ours, entry),
            f"{per_token(found[best]['median'], entry)} ({ALL[best].label})" if best else "-",
            f"{entry['ratio']:.3f}" if entry["ratio"] else "-",
            per_token(least["arithmetic_us"], entry), per_token(least["memory_us"], entry),
            percent(larger / ours if larger and ours else None)])
    return markdown_table(["length", "count", ALL[row.precision.nimble].label, "best peer", "ratio",
                           "arithmetic limit", "memory limit", "of the larger limit"], lines)


def roof_text(case, row):
    roof = case["roof"]
    if roof is None:
        return "The machine's peaks were not measured: `nimble doctor` is not built."
    without = ("" if roof["dtype"] == row.precision.peak else
               f", for the CPU has no instruction for {row.precision.peak}")
    return (f"µs per token. The arithmetic limit is the operations of products and attention at "
            f"{roof['flops'] / 1e9:.0f} GFLOP/s, the peak of {roof['dtype']}{without}, the memory "
            f"limit the products' weights in {row.precision.name}, "
            f"{row.work.weights() * row.precision.weight_bytes / 1e6:.0f} MB, at "
            f"{roof['bytes'] / 1e9:.1f} GB/s, where the last cache does not hold them; both "
            "measured in this run.")


def errors_table(case):
    """Returns relative and largest errors by length and system."""
    names = systems_of(case)

    def cell(value):
        return "-" if value is None else f"{value['relative_error']:.1e} ({value['difference']:.1e})"
    lines = [[str(entry["length"]), *(cell(entry["systems"].get(name)) for name in names),
              cell(entry["tolerance"])] for entry in case["lengths"]]
    lines.append(["all", *(cell(case["accuracy"].get(name)) for name in names), "-"])
    return markdown_table(["length", *(ALL[name].label for name in names),
                           f"allowed in {case['precision']}"], lines)


def similarities_table(case):
    return markdown_table(
        ["", "rank correlation", "largest difference"],
        [[ALL[name].label, f"{value['rank_correlation']:.6f}",
          f"{value['largest_difference']:.1e}"] for name, value in case["similarities"].items()])


def markdown(rows, result):
    """Returns what follows the table of times on the page. rows: of models.py, by case."""
    lines = ["", "## Bars", "", *bar_lines(result["bars"])] if result["bars"] else []
    for row, case in zip(rows, result["cases"]):
        lines += ["", f"## {case['name']}: limits", "", roof_text(case, row), "",
                  *limits_table(row, case), "", f"## {case['name']}: errors", "",
                  "Relative error in the Euclidean norm against f64, in brackets the largest "
                  "absolute one; “all” is the geometric mean and the largest.", "",
                  *errors_table(case)]
        if case["similarities"]:
            lines += ["", f"## {case['name']}: similarities", "",
                      f"Cosine of the embeddings of {case['pairs']} pairs of sentences, with the "
                      "lengths of MRPC's test part and drawn words, half of them or more in common: "
                      "Spearman's rank correlation with PyTorch's in f32, and the largest "
                      "difference of a cosine.", "", *similarities_table(case)]
    return "\n".join(lines) + "\n"
