"""What a study leaves behind: JSON, a Markdown table, a plot as SVG and PNG."""

import sys

from experiments.harness.report import RESULTS, write_json


def write(stem, result, text, draw=None):
    """Writes RESULTS/stem.json and .md and, where draw(figure) draws the result, .svg and .png."""
    path = RESULTS / f"{stem}.json"
    write_json(path, result)
    path.with_suffix(".md").write_text(text, encoding="utf-8")
    kinds = ".md"
    if draw is not None:
        import matplotlib
        matplotlib.use("Agg")
        matplotlib.rcParams["svg.hashsalt"] = stem  # same data, same bytes
        import matplotlib.pyplot as plt
        figure = plt.figure(layout="constrained")
        draw(figure)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(path.with_suffix(".png"), dpi=120)
        plt.close(figure)
        kinds = ".md, .svg and .png"
    print(text, end="")
    print(f"wrote {path}, {kinds}", file=sys.stderr)


def percent(value, digits=0, sign=""):
    return "-" if value is None else f"{100 * value:{sign}.{digits}f} %"


def decimal(value, digits=2):
    return "–" if value is None else f"{value:.{digits}f}"


def markdown_table(header, rows):
    """Returns the lines of a table; the first column is text, the others are numbers."""
    return ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1),
            *("| " + " | ".join(row) + " |" for row in rows)]


def bar_lines(bars, digits, limit_digits=0, sign=""):
    """Returns a line for each bar: its value, what it may be at "most" or has to be at "least", the
    verdict. They are shares, or plain numbers where the bar says that it is a "count"."""
    def show(bar, value, digits, sign=""):
        return str(value) if bar.get("count") else percent(value, digits, sign)

    def line(bar):
        sense = "most" if "most" in bar else "least"
        return (f"- {bar['name']}: {show(bar, bar['value'], digits, sign)}, at {sense} "
                f"{show(bar, bar[sense], limit_digits)}: {'kept' if bar['kept'] else 'not kept'}")
    return [line(bar) for bar in bars]
