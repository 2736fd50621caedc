"""What rounding the operands of products to bytes costs a model, by how many terms share scales.

    .venv-experiments/bin/python -m experiments.precision.scales [MODEL]

Every linear layer of the model of an experiment (minilm) is computed in f64 on operands that were
rounded to 8 bits; all else is f64, too. Prints a table of relative errors in the Euclidean norm
against the model in f64. --precision int8 rounds as its first row does, int8-reduced as its third;
docs/running.md has the figures.
"""

import functools
import sys

import numpy as np

LENGTHS = (19, 29, 39, 49, 59, 69, 79, 103)  # tokens of a sentence
LEAST_RANGE = 1e-30


def groups_of(x, group):
    """x: (…, k). Returns a view (…, k / group, group); group 0: all of a row, or of a column."""
    return x.reshape(*x.shape[:-1], -1, group or x.shape[-1])


def over_range(x, group, steps=255):
    """Rounds each group of a row of x, (…, k), to so many steps between its least and its largest
    element."""
    parts = groups_of(x, group)
    least, most = parts.min(-1, keepdims=True), parts.max(-1, keepdims=True)
    step = np.maximum(most - least, LEAST_RANGE) / steps
    return (least + step * np.rint((parts - least) / step)).reshape(x.shape)


def around_zero(x, group, steps=127):
    """Rounds each group of a row of x, (…, k), to so many steps on either side of 0."""
    parts = groups_of(x, group)
    step = np.maximum(np.abs(parts).max(-1, keepdims=True), LEAST_RANGE) / steps
    return (step * np.rint(parts / step)).reshape(x.shape)


def exact(x, group):
    return x


def reduced(rounding, steps):
    return functools.partial(rounding, steps=steps)


# What is said of the rows and of the weights, how each is rounded, and the terms of a group.
ROWS = (
    ("128", over_range, 128, "128", around_zero, 128),
    ("64", over_range, 64, "64", around_zero, 64),
    ("128, 181 steps", reduced(over_range, 181), 128, "128, ± 90", reduced(around_zero, 90), 128),
    ("64", over_range, 64, "64, ± 64", reduced(around_zero, 64), 64),
    ("128", over_range, 128, "column", around_zero, 0),
    ("64", over_range, 64, "column", around_zero, 0),
    ("exact", exact, 0, "column", around_zero, 0),
    ("row", over_range, 0, "exact", exact, 0),
    ("row", over_range, 0, "column", around_zero, 0),
    ("32, around 0", around_zero, 32, "column", around_zero, 0),
)


def outputs_of(module, inputs):
    import torch
    with torch.no_grad():
        return [module(**{name: torch.from_numpy(array) for name, array in one.items()}).numpy()
                for one in inputs]


def rounded_outputs(module, inputs, of_rows, of_weights):
    """The module's outputs where its linear layers compute with rounded operands."""
    import torch
    hooks, kept = [], []
    for layer in module.modules():
        if not isinstance(layer, torch.nn.Linear):
            continue
        kept.append((layer, layer.weight.data))  # (n, k): a column of the product is a row
        layer.weight.data = torch.from_numpy(of_weights(layer.weight.data.numpy()))
        hooks.append(layer.register_forward_pre_hook(
            lambda _, operands: (torch.from_numpy(of_rows(operands[0].numpy())),)))
    try:
        return outputs_of(module, inputs)
    finally:
        for hook in hooks:
            hook.remove()
        for layer, weights in kept:
            layer.weight.data = weights


def main():
    from experiments.harness import experiment
    from experiments.harness.statistics import geometric_mean
    base = experiment.load(sys.argv[1] if len(sys.argv) > 1 else "minilm")
    module = base.make_module().double()
    inputs = [base.inputs(length) for length in LENGTHS]
    expected = outputs_of(module, inputs)
    print("| x | W | error | worst length |\n|---|---|---:|---:|")
    for rows, round_rows, of_row, columns, round_weights, of_column in ROWS:
        found = rounded_outputs(module, inputs, lambda x: round_rows(x, of_row),
                                lambda w: round_weights(w, of_column))
        errors = [float(np.linalg.norm(y - want) / np.linalg.norm(want))
                  for y, want in zip(found, expected)]
        print(f"| {rows} | {columns} | {geometric_mean(errors, [1] * len(errors)):.4f} | "
              f"{max(errors):.4f} |", flush=True)


if __name__ == "__main__":
    main()
