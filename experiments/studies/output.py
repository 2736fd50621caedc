"""What a study leaves behind: JSON, a Markdown table, a plot as SVG and PNG."""

import sys

from experiments.harness.errors import WRONG_RESULT
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


def verdict(bars):
    """Returns the exit code that bars ask for."""
    return WRONG_RESULT if any(not bar["kept"] for bar in bars) else 0


def finish(stem, result, tables):
    """Writes a result with bars as its module of tables has it; returns its exit code."""
    write(stem, result, tables.markdown(result), lambda figure: tables.draw(figure, result))
    return verdict(result["bars"])


def percent(value, digits=0, sign=""):
    return "-" if value is None else f"{100 * value:{sign}.{digits}f} %"


def decimal(value, digits=2):
    return "–" if value is None else f"{value:.{digits}f}"


def markdown_table(header, rows):
    """Returns the lines of a table; the first column is text, the others are numbers."""
    return ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1),
            *("| " + " | ".join(row) + " |" for row in rows)]


def make_bar(name, value, allowed=True, *, least=None, most=None, **more):
    """Returns a bar: `value` is to be at least or at most so much. One that was not measured (None),
    or may not count (`allowed`), is not kept. more: as of bar_lines."""
    sense, limit = ("least", least) if most is None else ("most", most)
    kept = value is not None and (value >= limit if most is None else value <= limit)
    return {"name": name, "value": value, sense: limit, "kept": bool(kept and allowed), **more}


def bar_line(bar, show, show_limit=None):
    """Returns the line of a bar: its value and what it is to be as show(number) writes them, or
    show_limit the latter, and the verdict."""
    sense = "most" if "most" in bar else "least"
    return (f"- {bar['name']}: {show(bar['value'])}, at {sense} "
            f"{(show_limit or show)(bar[sense])}: {'kept' if bar['kept'] else 'not kept'}")


def bar_lines(bars, digits, limit_digits=0, sign=""):
    """Returns a line for each bar: its value, what it may be at "most" or has to be at "least", the
    verdict. They are shares, or plain numbers where the bar says that it is a "count"."""
    def line(bar):
        if bar.get("count"):
            return bar_line(bar, str)
        return bar_line(bar, lambda value: percent(value, digits, sign),
                        lambda limit: percent(limit, limit_digits))
    return [line(bar) for bar in bars]
