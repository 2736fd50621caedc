"""BERT-base in TensorFlow, written out: its own operators, matrices as (inputs, outputs)."""

import numpy as np
import tensorflow as tf

from experiments.bert_base import weights


def make_function():
    """Returns a function of the inputs by name → last_hidden_state (1, n, 768)."""
    values = weights.weights()
    count, width, heads = weights.LAYERS, weights.WIDTH, weights.HEADS
    head = width // heads

    def constant(name):
        return tf.constant(values[name])

    def dense(name):
        return tf.constant(np.ascontiguousarray(values[f"{name}.weight"].T)), constant(
            f"{name}.bias")

    def apply(layer, x):
        return tf.nn.bias_add(tf.matmul(x, layer[0]), layer[1])

    def normalise(x, layer):
        mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, layer[1], layer[0], weights.EPSILON)

    def normalisation(name):
        return constant(f"{name}.weight"), constant(f"{name}.bias")

    words, positions, segments = (
        constant(f"embeddings.{part}_embeddings.weight")
        for part in ("word", "position", "token_type"))
    first = normalisation("embeddings.LayerNorm")
    layers = []
    for index in range(count):
        layer = f"encoder.layer.{index}"
        attention = f"{layer}.attention"
        # One product for query, key and value, as BERT's faster implementations have it.
        parts = [dense(f"{attention}.self.{part}") for part in ("query", "key", "value")]
        layers.append({
            "qkv": (tf.concat([part[0] for part in parts], 1),
                    tf.concat([part[1] for part in parts], 0)),
            "out": dense(f"{attention}.output.dense"),
            "norm": normalisation(f"{attention}.output.LayerNorm"),
            "up": dense(f"{layer}.intermediate.dense"), "down": dense(f"{layer}.output.dense"),
            "last": normalisation(f"{layer}.output.LayerNorm")})

    def forward(input_ids, attention_mask, token_type_ids):
        n = tf.shape(input_ids)[1]
        x = tf.gather(words, input_ids[0]) + positions[:n] + tf.gather(segments, token_type_ids[0])
        x = normalise(x, first)
        mask = (1 - tf.cast(attention_mask, tf.float32)) * tf.float32.min
        for layer in layers:
            qkv = tf.reshape(apply(layer["qkv"], x), (n, 3, heads, head))
            q, k, v = tf.unstack(tf.transpose(qkv, (1, 2, 0, 3)))
            scores = tf.matmul(q, k, transpose_b=True) * (head ** -0.5) + mask
            seen = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), (1, 0, 2))
            x = normalise(x + apply(layer["out"], tf.reshape(seen, (n, width))), layer["norm"])
            inner = tf.nn.gelu(apply(layer["up"], x), approximate=False)
            x = normalise(x + apply(layer["down"], inner), layer["last"])
        return x[None]

    return forward
