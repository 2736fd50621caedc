"""What a run of image networks in narrow types says: ratios, errors, classes, bars."""

import numpy as np

from experiments.harness.systems import ALL
from experiments.images.networks import LEAST_MEAN, OWN
from experiments.images.tables import (key_of, line_of, median_of, notes, ratio_cell, sides,
                                       spread)
from experiments.images_precision.models import AIM, KINDS
from experiments.precision.accuracy import LEAST, worst_ratio
from experiments.precision.accuracy import summarise as summarise_errors
from experiments.roofline.tables import milliseconds
from experiments.studies.output import decimal, make_bar, markdown_table, percent


def agreement(outputs, exact):
    """outputs: {system: (images, classes)}. Returns for each system the share of images that it puts
    into the class that the exact one does (`top1`), and the norm of its errors over that of the
    exact result (`relative_error`)."""
    wanted = outputs[exact]
    classes = np.argmax(wanted, axis=1)
    return {system: {"top1": float(np.mean(np.argmax(found, axis=1) == classes)),
                     "relative_error": float(np.linalg.norm(found - wanted)
                                             / np.linalg.norm(wanted))}
            for system, found in outputs.items()}


def summarise(case, record):
    """Returns what the result says of a case. record: what program.py keeps of it."""
    own = record["done"].get(key_of(OWN))
    others = [entry for key, entry in record["done"].items() if key != key_of(OWN)]
    return {"name": f"{case.network}-{case.kind}", "title": case.title, "kind": case.kind,
            "failure": record["failure"], "errors": record["errors"], "tuning": record["tuning"],
            "own": own, "sizes": others, "tolerances": record["tolerances"],
            "agreement": record["agreement"],
            "accuracy": summarise_errors(list(record["done"].values())),
            "worst_error": worst_ratio(list(record["done"].values()), case.precision),
            "ratios": spread([e["ratio"] for e in others if e["ratio"] is not None])}


def bars(found):
    """Returns the bars of all cases. One that nimble failed on keeps none."""
    out = []
    for case in found:
        kind, failed = KINDS[case["kind"]], case["failure"] is not None

        def bar(name, value, **limit):
            out.append(make_bar(f"{case['title']}{name}", value, not failed, **limit))
        bar(f" at {sides(OWN)}: best peer / nimble", case["own"] and case["own"]["ratio"],
            least=kind.least)
        if case["sizes"]:
            bar(" over sizes: geometric mean of best peer / nimble",
                case["ratios"] and case["ratios"]["mean"], least=kind.least)
        bar(": nimble's error over that of the most accurate peer, at the worst size",
            case["worst_error"], most=kind.precision.most_error)
    return out


def times_table(cases, systems):
    rows = []
    for case in cases:
        own, ratios = case["own"], case["ratios"]
        mean = "–" if ratios is None else (f"{ratios['mean']:.2f} ({ratios['low']:.2f} – "
                                           f"{ratios['high']:.2f})")
        rows.append([case["title"], *(milliseconds(median_of(own, name)) for name in systems),
                     ALL[own["best_peer"]].label if own and own["best_peer"] else "–",
                     ratio_cell(own), str(len(case["sizes"])), mean,
                     decimal(ratios and ratios["lowest"])])
    return markdown_table(
        ["", *(f"{ALL[name].label}, ms" for name in systems), "best peer", "best peer / nimble",
         "other sizes", "geometric mean over them", "lowest"], rows)


def errors_table(cases, systems):
    def cell(case, name):
        value, seen = case["accuracy"].get(name), case["agreement"].get(name)
        if value is None:
            return "–"
        return f"{value['relative_error']:.1e}" + (f" ({percent(seen['top1'])})" if seen else "")
    return markdown_table(
        ["", *(ALL[name].label for name in systems), "nimble's over the least of the peers'"],
        [[case["title"], *(cell(case, name) for name in systems), decimal(case["worst_error"])]
         for case in cases])


def markdown(result):
    found = result["networks"]
    lines = [
        "# Image networks in narrow types", "",
        f"{result['machine']['cpu']}, {result['threads']} threads, one image. All systems of a case "
        "run interleaved, each in a process of its own and warm at each size. A result may be as "
        "wrong against PyTorch's in f64 as PyTorch's f32 is there, times the quotient of the "
        f"roundoffs, or {LEAST:g} of its roundoffs where that is more. In int8 all systems read "
        "one file, which ONNX Runtime's static quantiser "
        f"calibrated on {result['cases_of']['calibrated']} drawn images: they differ by how they "
        "round alone.", ""]
    for kind, row in KINDS.items():
        cases = [case for case in found if case["kind"] == kind]
        if not cases:
            continue
        systems = (row.precision.nimble, *row.precision.rivals)
        reached = [case for case in cases if case["own"] and (case["own"]["ratio"] or 0) >= AIM]
        low, high = result["range"]
        lines += [
            f"## {kind}", "", f"At {sides(OWN)}, and over heights and widths drawn from {low} to "
            f"{high}; 95 % intervals in brackets. The bar is {row.least:g}; {len(reached)} of "
            f"{len(cases)} reach the aim of {AIM:g} at {sides(OWN)}.", "",
            *times_table(cases, systems), "",
            "Relative errors against f64 in the geometric mean over the sizes; in brackets how many "
            f"of {result['cases_of']['classified']} drawn images are put into the class that f64 "
            "puts them into. The last column is of the worst size, at most "
            f"{row.precision.most_error:g}:", "", *errors_table(cases, systems), ""]
    tuned = [f"{case['title']} " + ", ".join(f"{count} {outcome}" for outcome, count in
                                             case["tuning"]["outcomes"].items())
             for case in found if case["tuning"]]
    lines += ["Kernels by what the database has of them: " + "; ".join(tuned) + "." if tuned
              else "nimble ran default schedules alone.", ""]
    failed = notes(found)
    if failed:
        lines += ["What failed:", "", *failed, ""]
    lines += [f"- {ALL[name].label} {info['version']}: {info['settings']}"
              for name, info in result["systems"].items()]
    lines += ["", "Bars:", "", *map(line_of, result["bars"])]
    return "\n".join(lines) + "\n"


def draw(figure, result):
    """The ratio of each case at OWN, and the mean over the other sizes."""
    found = result["networks"]
    figure.set_size_inches(8, 1.5 + 0.4 * len(found))
    figure.suptitle("Image networks in narrow types: best peer's time / nimble's\n"
                    f"{result['machine']['cpu']}", fontsize=10)
    axis = figure.subplots()
    for row, case in enumerate(found):
        own = case["own"]
        if own and own["ratio"] is not None:
            axis.barh(row, own["ratio"], height=0.55,
                      color=ALL[KINDS[case["kind"]].precision.nimble].colour)
            axis.plot([own["ratio_low"], own["ratio_high"]], [row, row], color="#000000",
                      linewidth=1)
        if case["ratios"]:
            axis.plot(case["ratios"]["mean"], row, marker="D", color="#0072B2")
    axis.set_yticks(range(len(found)), [case["title"] for case in found])
    axis.invert_yaxis()
    axis.axvline(LEAST_MEAN, color="#000000", linewidth=0.8)
    axis.axvline(AIM, color="#000000", linewidth=0.8, linestyle=":")
    axis.set_xlabel(f"at {sides(OWN)}; diamond: mean over other sizes; dotted: the aim")
    axis.grid(alpha=0.3, axis="x")
