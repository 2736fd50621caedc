"""The page of `scripts/gpu-check`: what check.py has put in gpu.json, as gpu.md."""

import statistics

from experiments.gpu import candidates, models, tuning, vendor
from experiments.studies.output import bar_line, decimal, make_bar


def page(data):
    lines = ["# nimble on an NVIDIA GPU", "", "`scripts/gpu-check`; see docs/cuda.md.", ""]
    if "machine" in data:
        lines += [f"- {key}: {value}" for key, value in data["machine"].items()] + [""]
    if "operators" in data:
        found = data["operators"]
        if "failed" in found:
            lines += [f"Operators: {found['failed']}", ""]
        else:
            lines += [f"{found['cases'] - len(found['wrong'])} of {found['cases']} of ONNX's tests "
                      "of operators pass.", ""]
            lines += [f"- {name}: {why}" for name, why in list(found["wrong"].items())[:40]] + [""]
    found = data.get("tuning", {})
    if found.keys() == {"failed"}:
        lines += [f"The tuning campaign: {found['failed']}", ""]
    elif found:
        lines += tuning.lines(found)
    for name, found in data.get("models", {}).items():
        lines += [f"## {name}", ""]
        if name in models.MODELS:
            ratios = [case["ratio"] for case in found.get("cases", {}).values() if "ratio" in case]
            bar = make_bar("the better of PyTorch's time over nimble's, the least",
                           min(ratios, default=None), least=models.MODELS[name].bar)
            lines += [bar_line(bar, decimal), ""]
        for key in ("failed", "left_out"):
            if key in found:
                lines += [f"{key}: {found[key]}", ""]
        systems = list(dict.fromkeys(
            system for case in found.get("cases", {}).values() for system in case.get("us", {})))
        lines += ["| case | error | " + "".join(f"{system} us | " for system in systems)
                  + "best / nimble | first run |", "| --- " * (4 + len(systems)) + "|"]
        for label, case in found.get("cases", {}).items():
            us = "".join(f"{statistics.median(case['us'][s]):.0f} | "
                         if case.get("us", {}).get(s) else " | " for s in systems)
            lines.append(
                f"| {label} | {case.get('error', float('nan')):.1e}"
                f"{'' if case.get('right') else ' WRONG'} | {us}"
                f"{case.get('ratio', float('nan')):.2f} | "
                f"{case.get('first_ratio', float('nan')):.2f} |")
        lines.append("")
    found = data.get("candidates", {})
    if "failed" in found:
        lines += [f"Candidates: {found['failed']}", ""]
    elif found:
        lines += ["## Candidates", "", f"{len(found['rows'])} of {found['packed']} have run.", ""]
        lines += candidates.lines(found["rows"])
    found = data.get("vendor", {})
    if "failed" in found:
        lines += [f"NVIDIA's libraries: {found['failed']}", ""]
    elif found:
        lines += vendor.lines(found)
    return "\n".join(lines)
