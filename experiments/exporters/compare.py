"""When results count as equal."""

import numpy as np

RTOL, ATOL = 1e-4, 1e-5


def difference(got, wanted):
    """Returns (largest error relative to what is allowed, message); the message is empty if equal.

    Floats may differ by ATOL + RTOL * |wanted|, everything else not at all.
    """
    if len(got) != len(wanted):
        return np.inf, f"{len(got)} outputs where PyTorch gives {len(wanted)}"
    worst = 0.0
    for i, (a, b) in enumerate(zip(got, wanted)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return np.inf, f"output {i}: {a.dtype}{list(a.shape)}, PyTorch {b.dtype}{list(b.shape)}"
        if a.dtype.kind != "f":
            if not np.array_equal(a, b):
                return np.inf, f"output {i}: {np.count_nonzero(a != b)} of {a.size} elements differ"
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            error = np.where(same, 0, np.abs(a - b) / (ATOL + RTOL * np.abs(b)))
        error = np.where(np.isnan(error), np.inf, error)
        largest = float(error.max(initial=0))
        if largest > 1:
            return largest, f"output {i}: {np.count_nonzero(error > 1)} of {a.size} elements differ"
        worst = max(worst, largest)
    return worst, ""
