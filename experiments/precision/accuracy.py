"""Errors of outputs against f64, and which of them are accepted.

An f32 system must come within the experiment's tolerance. What a narrower type may be wrong by
follows from what f32 is wrong by: the roundings of both grow through the same model, so that an
error of PyTorch's f32 output, times the quotient of both types' roundoffs, is what the narrower type
had if all of it were rounded as f32 is rounded there. Systems that sum in f32 come below. Where f32
happens to be nearly exact, as at single sizes of networks that end in a mean over many pixels, a
narrower type cannot be asked for the same luck: a result may always be off by LEAST of its
roundoffs, a chosen number: SqueezeNet in bf16, by any system, is off by 1.2 to 1.3.
"""

import numpy as np

from experiments.harness import measure
from experiments.harness.errors import WRONG_RESULT, ExperimentError
from experiments.harness.statistics import geometric_mean
from experiments.precision.models import EXACT, F32_ROUNDOFF, SINGLE

LEAST = 1.5  # roundoffs


def deviation(found, expected):
    """Returns the largest absolute difference (`difference`) and the Euclidean norm of all over
    that of what is expected (`relative_error`); NaN and infinity stay what they are."""
    apart = np.asarray(found, np.float64) - expected
    return {"difference": float(np.max(np.abs(apart))),
            "relative_error": float(np.linalg.norm(apart) / np.linalg.norm(expected))}


def tolerance_of(single, precision):
    """Returns both errors that are accepted in a precision, by the deviation of PyTorch's f32; by
    what factor the relative one was luck, the absolute one was, too."""
    quotient = precision.roundoff / F32_ROUNDOFF
    relative = max(single["relative_error"], LEAST * F32_ROUNDOFF)
    luck = relative / single["relative_error"] if single["relative_error"] > 0 else np.inf
    return {"difference": single["difference"] * quotient * luck if single["difference"] > 0
            else np.inf,
            "relative_error": relative * quotient}


def examine(workers, precision, tolerance, length):
    """Runs every system once. Returns ({system: deviation}, {system: ExperimentError} of those
    that failed or are too far away, the tolerance of the precision).

    precision: of models.py; tolerance: the largest absolute difference of the others.
    """
    outputs, errors = measure.run_once(workers, EXACT, length)
    if SINGLE in errors:
        raise errors[SINGLE]
    expected = np.asarray(outputs[EXACT], np.float64)
    figures = {}
    for system, found in outputs.items():
        if np.shape(found) == expected.shape:
            figures[system] = deviation(found, expected)
        else:
            errors[system] = wrong(system, length, f"shape {np.shape(found)}, {EXACT} has "
                                                   f"{expected.shape}")
    single = {"difference": tolerance}
    narrow = tolerance_of(figures[SINGLE], precision)
    for system, found in figures.items():
        allowed = narrow if system in (precision.nimble, *precision.rivals) else single
        for key, most in allowed.items():
            if not found[key] <= most and system not in errors:  # NaN fails too
                errors[system] = wrong(
                    system, length, f"{key.replace('_', ' ')} of {found[key]:.2g} from {EXACT}, "
                                    f"allowed are {most:.2g}")
    for system in (EXACT, SINGLE):
        if system in errors:
            raise errors[system]
    return ({system: found for system, found in figures.items() if system not in errors}, errors,
            narrow)


def wrong(system, length, text):
    return ExperimentError(f"{system}: at length {length}: {text}; nothing was timed there",
                           WRONG_RESULT, system)


def summarise(entries):
    """Returns {system: errors over the lengths that it reached}: the geometric mean of its relative
    errors, each length as often as it occurs, and the largest of both."""
    found = {}
    for system in dict.fromkeys(name for entry in entries for name in entry["systems"]):
        reached = [entry for entry in entries if system in entry["systems"]]
        values = [entry["systems"][system] for entry in reached]
        relative = [max(value["relative_error"], np.finfo(float).tiny) for value in values]
        found[system] = {
            "relative_error": geometric_mean(
                relative, [max(entry["count"], 1) for entry in reached]),
            "largest_relative_error": max(value["relative_error"] for value in values),
            "difference": max(value["difference"] for value in values)}
    return found


def worst_ratio(entries, precision):
    """Returns nimble's relative error over the least of the peers in the same precision, at the
    length where that is largest; None where they were never measured together."""
    ratios = []
    for entry in entries:
        systems = entry["systems"]
        peers = [systems[name]["relative_error"] for name in precision.rivals if name in systems]
        if peers and precision.nimble in systems:
            ratios.append(systems[precision.nimble]["relative_error"] / min(peers))
    return max(ratios, default=None)
