"""What a run takes at least: its operations at the machine's peak, its weights at the bandwidth."""

from experiments.roofline import tables


def roof(peaks, threads, precision):
    """Returns the most that measurements of `nimble doctor --measure` found, as `tables.roofs` has
    it, and the `dtype` of the peak: f32 where the CPU has no instruction for the precision."""
    known = {ceiling["dtype"] for one in peaks for ceiling in one["ceilings"]}
    dtype = precision.peak if precision.peak in known else "f32"
    return {"dtype": dtype, **tables.roofs(peaks, threads, dtype)}


def limits(row, found, cache, length):
    """Returns the least µs of a run by arithmetic, and by reading the weights from memory, None
    where the last cache (bytes) holds them.

    row: of models.py; found: of `roof`.
    """
    weights = row.work.weights() * row.precision.weight_bytes
    return {"arithmetic_us": 1e6 * row.work.flops(length) / found["flops"],
            "memory_us": 1e6 * weights / found["bytes"] if weights > cache else None}
