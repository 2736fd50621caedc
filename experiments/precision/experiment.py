"""Models in low precision over the lengths of MRPC's sentence pairs, against peers in the same.

Each case is an experiment of f32 with other systems: its weights, its inputs, its export. Tuning
sees the pairs of even length, the tables report those of odd length.
"""

import dataclasses

from experiments.harness import experiment, workload
from experiments.precision.models import ROWS

NAME = "precision"
CALIBRATED = 24  # lengths that quantisers of peers see


def histogram():
    return workload.split(workload.histogram(("pair",)))[1]


def tuning_histogram():
    return workload.split(workload.histogram(("pair",)))[0]


def calibration(inputs):
    """Returns what quantisers see: inputs of lengths that tuning sees, too, and no table reports.
    """
    return [inputs(length) for length in
            workload.quantile_lengths(tuning_histogram(), CALIBRATED)]


def make(row, name, title="", variants=()):
    """Returns the experiment of a row."""
    base = experiment.load(row.model)
    precision = row.precision

    def nimble_models(folder):
        argument = base.nimble_models(folder)[base.nimble]
        return {precision.nimble: argument, base.nimble: argument}

    return dataclasses.replace(
        base, name=name, title=title or row.case, case=row.case, variants=variants,
        histogram=histogram, tuning_histogram=tuning_histogram, trace=None, peers=row.peers,
        nimble_models=nimble_models, nimble=precision.nimble,
        calibration=lambda: calibration(base.inputs),
        system_options={precision.nimble: ("--precision", precision.name)},
        rivals=precision.rivals, untimed=row.peers[:1],
        runner="experiments.precision.run", server="experiments.precision.worker")


EXPERIMENT = make(
    ROWS[0], NAME, title="Models in low precision, MRPC sentence pairs",
    variants=tuple(make(row, f"{NAME}/{row.key}") for row in ROWS[1:]))
