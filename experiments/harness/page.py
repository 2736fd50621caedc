"""The program behind `experiments/report`: all results on one page that needs no other file.

First come all bars: what was found, what was asked, and which experiments were not run. Each
experiment's section is made of what its run wrote: NAME.md as the text, NAME.svg as the picture,
NAME.json for machine, command and the times by length; NAME-LABEL.* follow. What a paper says about
it stands beside, from the file paper.json in the experiment's folder: one or a list of {"source",
"table", "title", "unit", "columns", "rows": {label: numbers or null}, "note"}. What is asked of an
experiment that compares speeds stands in bars.json there: a list of {"case", "least"}, of the best
peer's time over nimble's: its mean, or with "from" and "to" the lowest at any length between them,
or with "length" at the one nearest to it.
"""

import argparse
import base64
import html
import json
import math
import pathlib
import sys

from experiments.harness import experiment as experiments
from experiments.harness import markdown
from experiments.harness.errors import FAILURE, ExperimentError, exit_code

RESULTS = experiments.ROOT / "experiments" / "results"
STYLE = """
body { font: 15px/1.45 sans-serif; margin: 2em auto; max-width: 1200px; padding: 0 1em; }
table { border-collapse: collapse; margin: .6em 0; font-size: 13px; }
th, td { border: 1px solid #bbb; padding: .2em .6em; text-align: left; vertical-align: top; }
.r { text-align: right; font-variant-numeric: tabular-nums; }
th { background: #eee; }
img { max-width: 100%; }
.beside { display: flex; flex-wrap: wrap; gap: 2em; align-items: flex-start; }
.paper { background: #f6f3e8; padding: .2em 1em; }
.missing { color: #900; }
code, pre { font-size: 12px; background: #f4f4f4; }
small { color: #555; }
"""


def folder_of(name):
    return experiments.ROOT / "experiments" / name.replace("-", "_")


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ExperimentError(f"{path}: not JSON ({error})") from None


def find_stem(name, results, parts):
    """Returns the stem of an experiment's results: of its full run, else, if asked for, of one
    that left something out; None where there is none."""
    for stem in (name, f"{name}-part") if parts else (name,):
        if any((results / f"{stem}{end}").exists() for end in (".json", ".md")):
            return stem
    return None


def labelled_stems(name, results, names):
    """Returns the stems of an experiment's results under a label of their own, like
    budget-exporters, but for those that belong to another experiment or left something out."""
    found = sorted(path.stem for path in results.glob(f"{name}-*.json") if "." not in path.stem)
    return [stem for stem in found if not stem.endswith("-part") and not any(
        other != name and len(other) > len(name) and f"{stem}-".startswith(f"{other}-")
        for other in names)]


def number(value):
    return "–" if value is None else f"{value:.4g}"


def speed_bar(asked, case):
    """Returns (name, found, asked, kept) of a bar of bars.json; what was not measured is not
    kept."""
    rated = [entry for entry in case["lengths"] if entry.get("ratio")]
    what, found = "mean", case.get("ratio_to_best_peer")
    if "length" in asked:
        nearest = min(rated, default=None, key=lambda entry: abs(
            math.log(entry["length"] / asked["length"])))
        found = nearest and nearest["ratio"]
        what = f"at {nearest['length'] if nearest else '–'}, the nearest to {asked['length']}"
    elif "from" in asked:
        within = [entry["ratio"] for entry in rated
                  if asked["from"] <= entry["length"] <= asked["to"]]
        found = min(within, default=None)
        what = f"lowest of {len(within)} lengths from {asked['from']} to {asked['to']}"
    kept = found is not None and found >= asked["least"]
    return (f"{case['name']}: best peer / nimble, {what}", number(found),
            f"at least {number(asked['least'])}", kept)


def bars_of(result, asked=()):
    """Returns what a result says of its bars: (name, found, asked, kept) each. Of an experiment
    that compares speeds what it found, with nothing asked (None), and what bars.json (`asked`) asks
    of the cases that it has; of one that it lacks nothing is found."""
    found = []
    for bar in result.get("bars") or []:
        sense = "most" if "most" in bar else "least"
        found.append((bar["name"], number(bar["value"]), f"at {sense} {number(bar[sense])}",
                      bar["kept"]))
    for claim in result.get("claims") or []:
        found.append((claim["claim"], claim["found"], "", claim["holds"]))
    if is_of_speeds(result):
        found += [(f"{case['name']}: best peer / nimble",
                   f"{case['ratio_to_best_peer']:.3f}, lowest {case['lowest_ratio']:.3f}", "", None)
                  for case in result["cases"] if case.get("ratio_to_best_peer")]
        cases = {case["name"]: case for case in result["cases"]}
        found += [speed_bar(bar, cases.get(bar["case"], {"name": bar["case"], "lengths": []}))
                  for bar in asked]
    return found


def bars_table(rows):
    """rows: (stem of a result, *bar) each."""
    verdicts = {True: "kept", False: "not kept", None: ""}
    return "<table><tr><th></th><th>bar</th><th>found</th><th>asked</th><th></th></tr>" + "".join(
        f"<tr><td><a href='#{html.escape(name)}'>{html.escape(name)}</a></td>"
        f"<td>{html.escape(text)}</td><td>{html.escape(found)}</td><td>{html.escape(asked)}</td>"
        f"<td{' class=missing' if kept is False else ''}>{verdicts[kept]}</td></tr>"
        for name, text, found, asked, kept in rows) + "</table>"


def machine_table(machine):
    rows = {
        "CPU": machine["cpu"], "features": ", ".join(machine["features"]),
        "cores": f"{machine['cores']} of {machine['cores_available']}",
        "caches": ", ".join(f"{name} {size}" for name, size in machine["caches"].items()),
        "memory": f"{machine['memory_bytes'] / 2**30:.1f} GiB", "kernel": machine["kernel"]}
    return "<table>" + "".join(
        f"<tr><th>{html.escape(key)}</th><td>{html.escape(str(value))}</td></tr>"
        for key, value in rows.items()) + "</table>"


def paper_table(paper):
    """Returns a paper's figures as HTML, with where they stand."""
    head = "".join(f"<th class=r>{html.escape(column)}</th>" for column in paper["columns"])
    rows = "".join(
        f"<tr><td>{html.escape(label)}</td>" + "".join(
            f"<td class=r>{'–' if value is None else html.escape(str(value))}</td>"
            for value in values) + "</tr>" for label, values in paper["rows"].items())
    return (f"<div class=paper><h3>{html.escape(paper['table'])} of the paper: "
            f"{html.escape(paper['title'])}</h3><table><tr><th>{html.escape(paper['unit'])}</th>"
            f"{head}</tr>{rows}</table><p><small>{html.escape(paper.get('note', ''))} "
            f"{html.escape(paper['source'])}.</small></p></div>")


def asked_of(name):
    return read_json(folder_of(name) / "bars.json") or []


def papers_of(name):
    found = read_json(folder_of(name) / "paper.json") or []
    return found if isinstance(found, list) else [found]


def lengths_table(case):
    """Returns a case's times by length, folded away."""
    systems = list(dict.fromkeys(s for entry in case["lengths"] for s in entry["systems"]))
    rows = []
    for entry in case["lengths"]:
        times = []
        for system in systems:
            value = entry["systems"].get(system)
            times.append("–" if value is None else
                         f"{value['median'] / entry['length']:.1f} "
                         f"({value['low'] / entry['length']:.1f}–"
                         f"{value['high'] / entry['length']:.1f})")
        ratio = f"{entry['ratio']:.3f}" if entry.get("ratio") else "–"
        rows.append("<tr>" + "".join(f"<td class=r>{html.escape(str(text))}</td>" for text in (
            entry["length"], entry["count"], *times, ratio)) + "</tr>")
    head = "".join(f"<th class=r>{html.escape(text)}</th>"
                   for text in ("length", "count", *systems, "best peer / nimble"))
    return (f"<details><summary>{html.escape(case['name'])}: µs per token by length, with 95 % "
            f"intervals</summary><table><tr>{head}</tr>{''.join(rows)}</table></details>")


def is_of_speeds(result):
    return isinstance(result, dict) and "cases" in result and "effort" in result


def section(name, results, parts):
    """Returns (HTML of an experiment, its machine or None)."""
    stem = find_stem(name, results, parts)
    papers = "".join(map(paper_table, papers_of(name)))
    title = f"<h2 id='{html.escape(name)}'>{html.escape(name)}</h2>"
    if stem not in (None, name):  # bars lead to it by this name
        title += f"<a id='{html.escape(stem)}'></a>"
    if stem is None:
        return (f"{title}<p class=missing>not run: <code>experiments/run {html.escape(name)}"
                f"</code></p>{papers}"), None
    result = read_json(results / f"{stem}.json")
    left_out = "<p class=missing>This run left something out.</p>" if stem != name else ""
    return (title + content(stem, result, results, left_out, papers),
            result.get("machine") if isinstance(result, dict) else None)


def content(stem, result, results, before, papers):
    """Returns the HTML of one result; `before` stands above its text, `papers` beside."""
    body = [before]
    text = results / f"{stem}.md"
    if text.exists():
        body.append(markdown.to_html(text.read_text(encoding="utf-8")))
    elif isinstance(result, dict):
        keys = ("title", "command", "date", "commit", "ratio_to_best_peer")
        body.append("<ul>" + "".join(
            f"<li>{key}: {html.escape(str(result[key]))}</li>" for key in keys if key in result)
            + "</ul>")
    if isinstance(result, dict) and "commit" in result:
        changed = " with uncommitted changes" if result.get("uncommitted_changes") else ""
        body.append(f"<p><small>commit {html.escape(str(result['commit'])[:12])}{changed}, "
                    f"{html.escape(str(result.get('date', '')))}, load before "
                    f"{result.get('machine', {}).get('load_before', '–')}</small></p>")
    inner = f"<div class=beside><div>{''.join(body)}</div>{papers}</div>"
    picture = results / f"{stem}.svg"
    if picture.exists():
        data = base64.b64encode(picture.read_bytes()).decode()
        inner += f"<img alt='{html.escape(stem)}' src='data:image/svg+xml;base64,{data}'>"
    if is_of_speeds(result):
        inner += "".join(map(lengths_table, result["cases"]))
    return inner


def page(names, results, parts):
    """Returns the page and the names of the experiments that have no result."""
    sections, bars, machines, missing = [], [], {}, []
    for name in names:
        text, machine = section(name, results, parts)
        sections.append(text)
        stem = find_stem(name, results, parts)
        result = read_json(results / f"{stem}.json") if stem else None
        if isinstance(result, dict):
            # A run that left something out is called NAME-part there: its bars ask for less.
            bars += [(stem, *bar) for bar in bars_of(result, asked_of(name))]
        if stem is None:
            bars.append((name, "not run", "–", "", None))
        for stem_of_label in labelled_stems(name, results, names):
            labelled = read_json(results / f"{stem_of_label}.json")
            sections.append(f"<h3 id='{html.escape(stem_of_label)}'>{html.escape(stem_of_label)}"
                            f"</h3>" + content(stem_of_label, labelled, results, "", ""))
            if isinstance(labelled, dict):
                bars += [(stem_of_label, *bar) for bar in bars_of(labelled)]
        if machine:
            # The same machine counts once, whatever its load was.
            known = {key: value for key, value in machine.items() if key != "load_before"}
            machines.setdefault(json.dumps(known, sort_keys=True), (machine, []))[1].append(name)
        if stem is None:
            missing.append(name)
    described = "".join(
        f"<p>{html.escape(', '.join(users))}:</p>{machine_table(machine)}"
        for machine, users in machines.values() if "caches" in machine)
    index = " · ".join(f"<a href='#{html.escape(name)}'>{html.escape(name)}</a>" for name in names)
    return ("<!doctype html><html lang=en><head><meta charset=utf-8><title>nimble: experiments"
            f"</title><style>{STYLE}</style></head><body><h1>Experiments</h1><p>{index}</p>"
            f"<h2>Machine</h2>{described}<h2>Bars</h2>{bars_table(bars)}{''.join(sections)}"
            "</body></html>\n"), missing


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="experiments/report", description="Makes one HTML page of all results, with what the "
        "papers say beside; it needs no other file.",
        epilog="exit codes: 0 done, 1 failure or, with --complete, a result is missing, 2 usage")
    parser.add_argument("-o", "--output", type=pathlib.Path, metavar="FILE",
                        default=RESULTS / "report.html", help="(default %(default)s)")
    parser.add_argument("--results", type=pathlib.Path, metavar="FOLDER", default=RESULTS,
                        help="where results lie (default %(default)s)")
    parser.add_argument("--parts", action="store_true",
                        help="where a full run is missing, take one that left something out")
    parser.add_argument("--complete", action="store_true", help="fail where a result is missing")
    return parser.parse_args(arguments)


def execute(options):
    text, missing = page([*experiments.NAMES, *experiments.PROGRAMS], options.results,
                         options.parts)
    options.output.write_text(text, encoding="utf-8")
    print(f"wrote {options.output}", file=sys.stderr)
    if missing:
        print(f"experiments/report: without {', '.join(missing)}", file=sys.stderr)
    return FAILURE if missing and options.complete else 0


def main(arguments):
    return exit_code(lambda: execute(parse_arguments(arguments)), program="experiments/report")
