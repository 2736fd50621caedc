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


def markdown_table(header, rows):
    """Returns the lines of a table; the first column is text, the others are numbers."""
    return ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1),
            *("| " + " | ".join(row) + " |" for row in rows)]


def bar_lines(bars, digits):
    """Returns a line for each bar that is a share: its value, what it may be at most, the verdict."""
    return [f"- {bar['name']}: {percent(bar['value'], digits, '+')}, at most "
            f"{percent(bar['most'])}: {'kept' if bar['kept'] else 'not kept'}" for bar in bars]
