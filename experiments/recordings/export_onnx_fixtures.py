"""Exports the small ONNX models of the importer's tests.

    .venv-experiments/bin/python experiments/recordings/export_onnx_fixtures.py [NAME…]

Every model goes through both of PyTorch's exporters, because they write different graphs for the
same module: the TorchScript one traces and leaves Shape-Gather-Concat-Reshape chains behind, the
dynamo one captures with symbolic shapes and decomposes more operators. Beside MODEL.onnx stands
MODEL.npz with recorded cases: arrays named `CASE.VALUE` (`0.input_ids`, `0.last_hidden_state`,
`1.input_ids`, …), where VALUE is the name of a graph input or output; all cases of one model have
different sizes of its symbolic dims. Outputs are PyTorch's, in float32; ONNX Runtime must agree
with them before a file is written. Weights come from fixed seeds.

Run `experiments/run --setup` first: it makes the virtual environment.
"""

import argparse
import inspect
import io
import logging
import os
import pathlib
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments.decode import model as decoder  # noqa: E402  (found through the line above)

DEFAULT_OUTPUT = ROOT / "compiler" / "frontend" / "test" / "data"
LARGEST_FILE = 300_000  # bytes; fixtures live in the repository


class Mlp(nn.Module):
    """Three dense layers with different activations, rows symbolic."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 33), nn.GELU(), nn.Linear(33, 10))

    def forward(self, x):
        return torch.softmax(self.layers(x), dim=-1)


class ConvNet(nn.Module):
    """Conv, BatchNorm (once behind a Conv, where exporters fold it, once where they can't),
    both poolings, a residual sum and a Gemm."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(8)
        self.max_pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.pointwise = nn.Conv2d(8, 16, 1)
        self.average_pool = nn.AvgPool2d(2)
        self.head = nn.Linear(16, 5)
        for norm in (self.stem_norm, self.norm):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.uniform_(norm.bias, -0.5, 0.5)
            nn.init.uniform_(norm.running_mean, -0.5, 0.5)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)

    def forward(self, image):
        x = self.max_pool(torch.relu(self.stem_norm(self.stem(image))))
        x = x + torch.relu(self.conv(self.norm(x)))
        x = self.average_pool(torch.relu(self.pointwise(self.depthwise(x))))
        x = nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.head(x)


class Recurrent(nn.Module):
    """LSTM or GRU over a sequence of symbolic length; returns every step and the last state."""

    def __init__(self, kind, **options):
        super().__init__()
        self.kind = kind
        self.net = kind(12, 16, batch_first=True, **options)

    def forward(self, x):
        output, state = self.net(x)
        return (output, *state) if self.kind is nn.LSTM else (output, state)


class SequenceFirstLstm(nn.Module):
    """One layer, time first, batch 1: the shape of the lstm experiment."""

    def __init__(self):
        super().__init__()
        self.net = nn.LSTM(12, 16)

    def forward(self, x):
        return self.net(x)[0]


class Lists(nn.Module):
    """Lists of tensors, scripted: one that a loop appends to, and one that a tensor is split into
    whose parts are worked on one by one. Sequences in ONNX."""

    def forward(self, x):
        totals, parts = [], torch.jit.annotate(list[torch.Tensor], [])
        total = torch.zeros_like(x[0])
        for i in range(x.size(0)):
            total = total * 0.9 + x[i]
            totals.append(total)
        for part in torch.split(x, 4):
            parts.append(part.cumsum(0) - part.mean(0))
        return torch.stack(totals, 1), torch.cat(parts)


class Bert(nn.Module):
    """transformers' BertModel, two layers, 32 wide."""

    def __init__(self, attention):
        super().__init__()
        import transformers
        transformers.logging.set_verbosity_error()
        config = transformers.BertConfig(
            vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=64, max_position_embeddings=64, attn_implementation=attention)
        self.bert = transformers.BertModel(config, add_pooling_layer=True)
        for name, parameter in self.bert.named_parameters():
            if name.endswith("bias"):
                nn.init.normal_(parameter, std=0.1)  # zero biases would hide a missing addition

    def forward(self, input_ids, attention_mask, token_type_ids):
        result = self.bert(input_ids=input_ids, attention_mask=attention_mask,
                           token_type_ids=token_type_ids, return_dict=True)
        return result.last_hidden_state, result.pooler_output


def bert_inputs(generator, b, n):
    lengths = [n] + list(generator.integers(1, n + 1, size=b - 1))
    mask = np.zeros((b, n), np.int64)
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
    return {
        "input_ids": generator.integers(0, 64, size=(b, n), dtype=np.int64),
        "attention_mask": mask,
        "token_type_ids": np.tile((np.arange(n) >= n // 2).astype(np.int64), (b, 1)),
    }


def floats(name, *dims):
    """Returns a function that draws one float32 input `name`; dims are ints or symbol names."""
    def draw(generator, **sizes):
        shape = [sizes[d] if isinstance(d, str) else d for d in dims]
        return {name: generator.standard_normal(shape).astype(np.float32)}
    return draw


def decoder_inputs(generator, b, n, past):
    """Draws a decoding step's tokens and states."""
    total = past + n
    config = decoder.CONFIGS["micro"]
    inputs = {"input_ids": generator.integers(0, config.vocabulary, (b, n)),
              "attention_mask": np.ones((b, total), np.int64),
              "position_ids": np.tile(np.arange(past, total), (b, 1))}
    shape = (b, config.heads, past, config.width // config.heads)
    for name in decoder.state_names(config)[0]:
        inputs[name] = generator.standard_normal(shape).astype(np.float32)
    return inputs


class Fixture:
    """A module, how to draw its inputs, its symbolic dims and output names, and recorded sizes.

    The first entry of `sizes` is the exporter's example; the exporters specialise sizes of 0 and
    1, so it has none of these. A symbol "total" is what the others make it.
    """

    def __init__(self, make, draw, symbols, outputs, sizes,
                 exporters=("torchscript", "dynamo")):
        self.make, self.draw, self.symbols, self.outputs, self.sizes, self.exporters = (
            make, draw, symbols, outputs, sizes, exporters)


BERT_SYMBOLS = {name: {0: "b", 1: "n"}
                for name in ("input_ids", "attention_mask", "token_type_ids")}
BERT_OUTPUTS = {"last_hidden_state": {0: "b", 1: "n"}, "pooler_output": {0: "b"}}
BN_SIZES = [dict(b=2, n=7), dict(b=1, n=1), dict(b=3, n=16), dict(b=1, n=27)]
LSTM_OUTPUTS = {"output": {0: "b", 1: "n"}, "h": {1: "b"}, "c": {1: "b"}}
GRU_OUTPUTS = {"output": {0: "b", 1: "n"}, "h": {1: "b"}}

DECODER_STATES = decoder.state_names(decoder.CONFIGS["micro"])
DECODER_SYMBOLS = {"input_ids": {0: "b", 1: "n"}, "attention_mask": {0: "b", 1: "total"},
                   "position_ids": {0: "b", 1: "n"},
                   **{name: {0: "b", 2: "past"} for name in DECODER_STATES[0]}}
DECODER_OUTPUTS = {"logits": {0: "b", 1: "n"},
                   **{name: {0: "b", 2: "total"} for name in DECODER_STATES[1]}}

FIXTURES = {
    "mlp": Fixture(Mlp, floats("x", "m", 20), {"x": {0: "m"}}, {"y": {0: "m"}},
                   [dict(m=4), dict(m=1), dict(m=13), dict(m=37)]),
    "convnet": Fixture(ConvNet, floats("image", "b", 3, 24, 20), {"image": {0: "b"}},
                       {"logits": {0: "b"}}, [dict(b=2), dict(b=1), dict(b=5)]),
    "convnet_any_size": Fixture(
        ConvNet, floats("image", "b", 3, "h", "w"), {"image": {0: "b", 2: "h", 3: "w"}},
        {"logits": {0: "b"}},
        [dict(b=2, h=24, w=20), dict(b=1, h=17, w=31), dict(b=3, h=32, w=32)]),
    "bert_sdpa": Fixture(lambda: Bert("sdpa"), bert_inputs, BERT_SYMBOLS, BERT_OUTPUTS, BN_SIZES),
    "bert_eager": Fixture(lambda: Bert("eager"), bert_inputs, BERT_SYMBOLS, BERT_OUTPUTS, BN_SIZES),
    "lstm": Fixture(lambda: Recurrent(nn.LSTM), floats("x", "b", "n", 12), {"x": {0: "b", 1: "n"}},
                    LSTM_OUTPUTS, BN_SIZES),
    "lstm_bidirectional": Fixture(
        lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True), floats("x", "b", "n", 12),
        {"x": {0: "b", 1: "n"}}, LSTM_OUTPUTS, BN_SIZES),
    "lstm_batch1": Fixture(SequenceFirstLstm, floats("x", "n", 1, 12), {"x": {0: "n"}},
                           {"y": {0: "n"}}, [dict(n=7), dict(n=1), dict(n=16), dict(n=54)]),
    "gru": Fixture(lambda: Recurrent(nn.GRU), floats("x", "b", "n", 12), {"x": {0: "b", 1: "n"}},
                   GRU_OUTPUTS, BN_SIZES),
    "decoder": Fixture(
        lambda: decoder.make_module(decoder.CONFIGS["micro"]), decoder_inputs, DECODER_SYMBOLS,
        DECODER_OUTPUTS, [dict(b=2, n=3, past=4), dict(b=1, n=1, past=7), dict(b=1, n=5, past=0),
                          dict(b=3, n=2, past=11)]),
    # torch.export unrolls such loops.
    "lists": Fixture(lambda: torch.jit.script(Lists()), floats("x", "n", 3), {"x": {0: "n"}},
                     {"totals": {1: "n"}, "parts": {0: "n"}},
                     [dict(n=7), dict(n=1), dict(n=4), dict(n=13)], exporters=("torchscript",)),
}


def export(exporter, fixture, module, inputs, path):
    """Writes `path` with one of PyTorch's exporters."""
    arguments = tuple(torch.from_numpy(a) for a in inputs.values())
    names = dict(input_names=list(inputs), output_names=list(fixture.outputs))
    if exporter == "torchscript":
        torch.onnx.export(module, arguments, path, dynamo=False, opset_version=17,
                          dynamic_axes={**fixture.symbols, **fixture.outputs}, **names)
    else:
        dims = {}
        dims["total"] = torch.export.Dim.AUTO
        shapes = [{axis: dims.setdefault(s, torch.export.Dim(s))
                   for axis, s in fixture.symbols[name].items()} for name in inputs]
        # What a module takes as *rest is one argument there.
        fixed = sum(p.kind != p.VAR_POSITIONAL
                    for p in inspect.signature(module.forward).parameters.values())
        shapes = (*shapes[:fixed], *([tuple(shapes[fixed:])] if fixed < len(shapes) else []))
        torch.onnx.export(module, arguments, path, dynamo=True, external_data=False,
                          dynamic_shapes=shapes, verbose=False, **names)


def record(fixture, module, path):
    """Runs every recorded size through PyTorch and ONNX Runtime; returns the arrays of the .npz."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    arrays = {}
    for case, sizes in enumerate(fixture.sizes):
        inputs = fixture.draw(np.random.default_rng(100 + case), **sizes)
        with torch.inference_mode():
            outputs = module(*(torch.from_numpy(a) for a in inputs.values()))
        outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
        accepted = {i.name for i in session.get_inputs()}
        checked = session.run(list(fixture.outputs),
                              {k: v for k, v in inputs.items() if k in accepted})
        for name, value, other in zip(fixture.outputs, outputs, checked, strict=True):
            np.testing.assert_allclose(other, value.numpy(), rtol=1e-4, atol=1e-5,
                                       err_msg=f"{path}: case {case}, output {name}")
            arrays[f"{case}.{name}"] = value.numpy()
        arrays.update({f"{case}.{name}": value for name, value in inputs.items()})
    return arrays


def strip(path):
    """Drops what differs between runs and machines and no importer reads: stack traces, the
    exporter's notes, names of source files."""
    model = onnx.load(path)
    model.doc_string = ""
    del model.metadata_props[:]
    graphs = [model.graph, *model.functions]
    while graphs:
        graph = graphs.pop()
        graph.doc_string = ""
        del graph.metadata_props[:]
        values = [] if isinstance(graph, onnx.FunctionProto) else [
            *graph.input, *graph.output, *graph.value_info, *graph.initializer]
        for item in [*values, *graph.node]:
            item.doc_string = ""
            del item.metadata_props[:]
        for node in graph.node:
            for attribute in node.attribute:
                graphs += [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return sorted({node.op_type for node in model.graph.node})


def export_external(folder):
    """Writes mlp_dynamo with its weights in a file of their own, as exporters do above 2 GB."""
    model = onnx.load(folder / "mlp_dynamo.onnx")
    target = folder / "mlp_external.onnx"
    target.with_suffix(".onnx.data").unlink(missing_ok=True)  # onnx.save would append to it
    onnx.save(model, target, save_as_external_data=True, location="mlp_external.onnx.data",
              size_threshold=256)
    target.with_suffix(".npz").write_bytes((folder / "mlp_dynamo.npz").read_bytes())
    print(f"{target.name}\t{os.path.getsize(target)}\twith {target.name}.data")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these models")
    parser.add_argument("--output", type=pathlib.Path, default=DEFAULT_OUTPUT)
    options = parser.parse_args()
    unknown = set(options.names) - set(FIXTURES)
    if unknown:
        parser.error(f"no model called {', '.join(sorted(unknown))}; there are "
                     f"{', '.join(FIXTURES)}")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    options.output.mkdir(parents=True, exist_ok=True)

    failures = 0
    for name in options.names or FIXTURES:
        fixture = FIXTURES[name]
        for exporter in fixture.exporters:
            torch.manual_seed(1)
            module = fixture.make().eval()
            path = options.output / f"{name}_{exporter}.onnx"
            example = fixture.draw(np.random.default_rng(7), **fixture.sizes[0])
            try:
                export(exporter, fixture, module, example, str(path))
                operators = strip(str(path))
                arrays = record(fixture, module, str(path))
            except Exception as error:  # one exporter's refusal must not hide the others' files
                failures += 1
                path.unlink(missing_ok=True)
                print(f"{path.name}: {type(error).__name__}: {str(error)[:600]}", file=sys.stderr)
                continue
            buffer = io.BytesIO()
            np.savez(buffer, **arrays)
            path.with_suffix(".npz").write_bytes(buffer.getvalue())
            sizes = [os.path.getsize(p) for p in (path, path.with_suffix(".npz"))]
            if max(sizes) > LARGEST_FILE:
                failures += 1
                print(f"{path.name}: {max(sizes)} bytes; shrink the model", file=sys.stderr)
            print(f"{path.name}\t{sizes[0]}\t{sizes[1]}\t{' '.join(operators)}")
    if not options.names or "mlp" in options.names:
        export_external(options.output)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
