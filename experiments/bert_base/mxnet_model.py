"""BERT-base in MXNet's Gluon, hybridized, with its interleaved attention operators."""

import mxnet as mx
import numpy as np

from experiments.bert_base import weights


class Bert(mx.gluon.HybridBlock):
    """Words, positions, segments (n, 1), mask (heads, 1, n) → last_hidden_state (n, 1, 768)."""

    def __init__(self):
        super().__init__()
        values = weights.weights()
        with self.name_scope():
            def constant(name, value):
                setattr(self, name, self.params.get_constant(name, value))

            for part in ("word", "position", "token_type"):
                constant(part, values[f"embeddings.{part}_embeddings.weight"])
            for part in ("weight", "bias"):
                constant(f"first_{part}", values[f"embeddings.LayerNorm.{part}"])
                for index in range(weights.LAYERS):
                    layer = f"encoder.layer.{index}"
                    attention = f"{layer}.attention"
                    qkv = np.stack([values[f"{attention}.self.{one}.{part}"]
                                    for one in ("query", "key", "value")])
                    # The operators want query, key and value of each head side by side.
                    heads = qkv.reshape(3, weights.HEADS, -1, *qkv.shape[2:]).swapaxes(0, 1)
                    constant(f"qkv{index}_{part}", heads.reshape(-1, *qkv.shape[2:]))
                    for name, source in (("out", f"{attention}.output.dense"),
                                         ("norm", f"{attention}.output.LayerNorm"),
                                         ("up", f"{layer}.intermediate.dense"),
                                         ("down", f"{layer}.output.dense"),
                                         ("last", f"{layer}.output.LayerNorm")):
                        constant(f"{name}{index}_{part}", values[f"{source}.{part}"])

    def hybrid_forward(self, F, ids, places, segments, mask, **p):
        width, inner, heads = weights.WIDTH, weights.INNER, weights.HEADS

        def embedding(indices, name, rows):
            return F.Embedding(indices, p[name], input_dim=rows, output_dim=width)

        def dense(x, name, outputs):
            return F.FullyConnected(x, p[f"{name}_weight"], p[f"{name}_bias"], num_hidden=outputs,
                                    flatten=False)

        def normalise(x, name):
            return F.LayerNorm(x, p[f"{name}_weight"], p[f"{name}_bias"], eps=weights.EPSILON)

        x = normalise(embedding(ids, "word", weights.VOCABULARY)
                      + embedding(places, "position", weights.POSITIONS)
                      + embedding(segments, "token_type", weights.SEGMENTS), "first")
        for index in range(weights.LAYERS):
            qkv = dense(x, f"qkv{index}", 3 * width)
            scores = F.contrib.interleaved_matmul_selfatt_qk(qkv, heads=heads)
            scores = F.softmax(F.broadcast_add(scores, mask), axis=-1)
            seen = F.contrib.interleaved_matmul_selfatt_valatt(qkv, scores, heads=heads)
            x = normalise(x + dense(seen, f"out{index}", width), f"norm{index}")
            grown = F.LeakyReLU(dense(x, f"up{index}", inner), act_type="gelu")
            x = normalise(x + dense(grown, f"down{index}", width), f"last{index}")
        return x


def make_function():
    """Returns a function of the inputs by name → last_hidden_state (1, n, 768)."""
    model = Bert()
    model.initialize()
    model.hybridize()

    def run(input_ids, attention_mask, token_type_ids):
        mask = ((1 - attention_mask.astype("float32")) * np.finfo(np.float32).min)
        mask = mask.expand_dims(0)  # (1, 1, n): the same for each head and query
        places = mx.nd.arange(input_ids.shape[1]).expand_dims(1)
        return model(input_ids.T, places, token_type_ids.T, mask).swapaxes(0, 1)

    return run
