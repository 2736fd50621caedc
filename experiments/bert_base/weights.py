"""Weights and inputs of the bert-base experiment, from a seed, with numpy alone.

BERT-base as published (Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for
Language Understanding", 2019): 12 layers of 768 with 12 heads, 3,072 wide in between, 30,522 word
pieces, 512 positions. The numbers are drawn by the generator of experiments/lstm/weights.py with
the standard deviation that BERT's own initialisation has, so that activations stay in range.
"""

import numpy as np

from experiments.lstm.weights import uniform

LAYERS, WIDTH, HEADS, INNER = 12, 768, 12, 3072
VOCABULARY, POSITIONS, SEGMENTS = 30522, 512, 2
EPSILON = 1e-12  # of the layer normalisations
CLS, SEP, FIRST_WORD = 101, 102, 1000
FIRST_STREAM = 64  # of the generator; tensor i of shapes() takes stream 64 + i
SCALE = np.float32(0.02 * np.sqrt(3))  # a uniform number of ±this has a deviation of 0.02


def shapes():
    """Returns {name: shape}, names as in Hugging Face's BertModel; matrices are (outputs, inputs).
    """
    found = {"embeddings.word_embeddings.weight": (VOCABULARY, WIDTH),
             "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
             "embeddings.token_type_embeddings.weight": (SEGMENTS, WIDTH)}

    def normalisation(name):
        found[f"{name}.weight"] = found[f"{name}.bias"] = (WIDTH,)

    def dense(name, inputs, outputs):
        found[f"{name}.weight"], found[f"{name}.bias"] = (outputs, inputs), (outputs,)

    normalisation("embeddings.LayerNorm")
    for index in range(LAYERS):
        layer = f"encoder.layer.{index}"
        for part in ("query", "key", "value"):
            dense(f"{layer}.attention.self.{part}", WIDTH, WIDTH)
        dense(f"{layer}.attention.output.dense", WIDTH, WIDTH)
        normalisation(f"{layer}.attention.output.LayerNorm")
        dense(f"{layer}.intermediate.dense", WIDTH, INNER)
        dense(f"{layer}.output.dense", INNER, WIDTH)
        normalisation(f"{layer}.output.LayerNorm")
    return found


def weights():
    """Returns {name: f32 array}; the scales of normalisations lie around 1, all else around 0."""
    result = {}
    for stream, (name, shape) in enumerate(shapes().items(), FIRST_STREAM):
        result[name] = uniform(stream, shape) * SCALE
        if name.endswith("LayerNorm.weight"):
            result[name] += np.float32(1)
    return result


def inputs(length):
    """Returns two sentences of random words, [CLS] a [SEP] b [SEP], nothing masked: each (1, n)
    i64."""
    ids = np.random.default_rng(length).integers(FIRST_WORD, VOCABULARY, (1, length))
    middle = length // 2
    ids[0, 0] = CLS
    ids[0, [middle, -1]] = SEP
    segments = (np.arange(length) > middle).astype(np.int64)[None]
    return {"input_ids": ids, "attention_mask": np.ones((1, length), np.int64),
            "token_type_ids": segments}
