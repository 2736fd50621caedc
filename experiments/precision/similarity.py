"""Similarities of sentences: pairs with the lengths of MRPC's, and rank correlation.

MRPC's text is not part of the repository, its lengths are. A pair here has the lengths of one of
the pairs of its test part and drawn words, of which the second sentence shares some with the first,
half at least: similarities lie as close together as those of paraphrases, and none is like another.
"""

import numpy as np

from experiments.harness import workload

SEED = 2005
CLS, SEP, FIRST_WORD, VOCABULARY = 101, 102, 1000, 30522  # of BERT's uncased word pieces
LEAST_SHARED = 0.5


def pairs(number=None):
    """Returns the first `number` pairs, or all, each two lists of word pieces. A smaller number is
    a prefix of a larger one."""
    generator = np.random.default_rng(SEED)
    made = []
    for first, second in workload.read(("first", "second"), "test")[:number]:
        words = generator.integers(FIRST_WORD, VOCABULARY, first - 2)
        others = generator.integers(FIRST_WORD, VOCABULARY, second - 2)
        share = generator.uniform(LEAST_SHARED, 1)
        kept = min(round(share * (second - 2)), first - 2)
        taken = np.sort(generator.choice(first - 2, kept, replace=False))
        places = np.sort(generator.choice(second - 2, kept, replace=False))
        others[places] = words[taken]  # in their order
        made.append(tuple(np.array([CLS, *part, SEP], np.int64) for part in (words, others)))
    return made


def inputs(sentence):
    """Returns what the models of sentences take."""
    return {"input_ids": sentence[None], "attention_mask": np.ones((1, len(sentence)), np.int64)}


def cosines(embeddings):
    """embeddings: (pairs, 2, width). Returns the cosine of each pair."""
    lengths = np.linalg.norm(embeddings, axis=2)
    return np.sum(embeddings[:, 0] * embeddings[:, 1], axis=1) / (lengths[:, 0] * lengths[:, 1])


def ranks(values):
    """Returns each value's rank from 1 on; equal ones share the mean of theirs."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[where.reshape(-1)]


def rank_correlation(a, b):
    """Returns Spearman's coefficient of two lists of numbers; NaN where one is constant."""
    x, y = (ranks(np.asarray(values)) for values in (a, b))
    x, y = x - x.mean(), y - y.mean()
    scale = np.sqrt(np.sum(x * x) * np.sum(y * y))
    return float(np.sum(x * y) / scale) if scale else float("nan")


def compare(similarities, reference):
    """similarities: {system: cosine of each pair}. Returns for each system its rank correlation
    with the reference's and the largest difference."""
    expected = similarities[reference]
    return {system: {"rank_correlation": rank_correlation(found, expected),
                     "largest_difference": float(np.max(np.abs(found - expected)))}
            for system, found in similarities.items()}
