"""Whole models that a budget is kept on: of published sizes, with drawn weights.

Each becomes one ONNX file by the exporter of TorchScript, its sizes dynamic; all-MiniLM-L6-v2 is
the Hugging Face folder of its package.
"""

import dataclasses

from torch import nn

from experiments.exporters import worker
from experiments.exporters.catalogue import Entry, Input, always, below, collect, floats, keep


class Encoder(nn.Module):
    """The first result of a model of transformers."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, *inputs):
        return self.net(*inputs, return_dict=False)[0]


def transformers():
    import transformers as t
    t.logging.set_verbosity_error()
    return t


def t5():
    """T5-small's encoder."""
    t = transformers()
    return Encoder(t.T5EncoderModel(t.T5Config(
        d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0)))


def resnet18():
    t = transformers()
    return Encoder(t.ResNetModel(t.ResNetConfig(
        hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic")))


def mobilenet():
    """MobileNetV2."""
    t = transformers()
    return Encoder(t.MobileNetV2Model(t.MobileNetV2Config(tf_padding=False), False))


def wav2vec():
    """wav2vec 2.0: the seven strided convolutions of its base, a smaller encoder behind them."""
    t = transformers()
    return Encoder(t.Wav2Vec2Model(t.Wav2Vec2Config(
        hidden_size=384, num_hidden_layers=4, num_attention_heads=6, intermediate_size=1536,
        num_conv_pos_embeddings=16, attn_implementation="eager")))


class Lstm(nn.Module):
    """300 → 512, one sequence: the sizes of the paper."""

    def __init__(self):
        super().__init__()
        self.net = nn.LSTM(300, 512, batch_first=True)

    def forward(self, x):
        return self.net(x)[0]


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    about: str
    entry: Entry | None  # None: all-MiniLM-L6-v2
    options: tuple = ()  # further arguments of `nimble tune`
    prefix: str = ""  # of the exported file

    def export(self, folder):
        """Writes the ONNX file unless it is there; returns the model argument of `nimble`."""
        if self.entry is None:
            from experiments.minilm.model import folder as minilm
            return str(minilm())
        path = folder / f"{self.prefix}{self.name}.onnx"
        worker.export_once(self.entry, path)
        return str(path)


def model(name, make, inputs, sizes, about, *options):
    return Model(name, about, Entry(name, "budget", always(make), inputs, sizes, about), options)


def of_exporters():
    """The models of `experiments/run exporters`, by the exporter of TorchScript."""
    return tuple(Model(entry.name, entry.about, entry, prefix="exporters-") for entry in collect())


def image(*dims):
    return floats(*dims, name="image")


IDS = [Input("input_ids", ("b", "n"), below(1000)), Input("attention_mask", ("b", "n"), keep)]
MODELS = (
    Model("minilm", "all-MiniLM-L6-v2", None),
    model("lstm", Lstm, [floats("b", "n", 300)], {"b": (1, 4), "n": (2, 60)}, "LSTM 300 → 512"),
    model("t5-encoder", t5, IDS, {"b": (1, 4), "n": (2, 60)}, "T5-small's encoder"),
    model("resnet-18", resnet18, [image(1, 3, "h", "w")], {"h": (64, 256), "w": (64, 256)},
          "ResNet-18, any size"),
    model("mobilenet", mobilenet, [image(1, 3, "h", "w")], {"h": (64, 256), "w": (64, 256)},
          "MobileNetV2, any size"),
    model("wav2vec", wav2vec, [floats(1, "n", name="sound")], {"n": (4000, 40000)},
          "wav2vec 2.0, four layers", "--size", "16000"),
)
