"""all-MiniLM-L6-v2, its inputs by batch and length."""

import numpy as np

from experiments.minilm.experiment import CLS, FIRST_WORD, SEP, VOCABULARY


def inputs(shape):
    """Returns random words between [CLS] and [SEP], nothing masked; the same for a shape always."""
    batch, length = shape
    ids = np.random.default_rng(shape).integers(FIRST_WORD, VOCABULARY, (batch, length))
    ids[:, 0] = CLS
    ids[:, -1] = SEP
    return {"input_ids": ids, "attention_mask": np.ones((batch, length), np.int64)}
