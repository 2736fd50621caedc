"""The models of `scripts/gpu-check`: what is packed here, and what runs beside nimble there."""

import dataclasses
from collections.abc import Callable

import numpy as np

from experiments.harness.experiment import ROOT


@dataclasses.dataclass(frozen=True)
class Model:
    """One compiled file. `source(folder)` returns the path of the model to compile, made in the
    folder if need be; `weights()` is what it was drawn from; `cases` maps a label to inputs;
    `module()` is the PyTorch module, whose `output` is compared."""
    name: str
    source: Callable
    weights: Callable
    cases: Callable
    module: Callable
    output: str
    tolerance: float  # of the largest number, against f64
    options: tuple = ()  # of nimble compile
    precision: str = "f32"  # of PyTorch beside it: f32, tf32 (f32 with TF32 on) or bf16
    trees: bool = False  # cases are trees: PyTorch's two are by recursion and by level
    bar: float = 1.0  # times as fast as the better of PyTorch's two


BERT_LENGTHS = (19, 53, 77, 104)  # of MRPC pairs; PyTorch compiles for each


def bert_source(folder):
    path = folder / "bert-base" / "model.onnx"
    if not path.exists():
        from experiments.bert_base import experiment
        path.parent.mkdir(parents=True, exist_ok=True)
        experiment.export(path.parent)
    return path


def bert_weights():
    from experiments.bert_base import weights
    return weights.weights()


def bert_cases():
    from experiments.bert_base import weights
    return {f"n = {n}": weights.inputs(n) for n in BERT_LENGTHS}


def bert_module():
    from experiments.bert_base.model import make_module
    return make_module()


def lstm_source(folder):
    from experiments.lstm import weights
    path = folder / "lstm" / "lstm.nir"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((ROOT / "experiments" / "lstm" / "lstm.nir").read_text())
    weights.save_safetensors(f"{path}.safetensors")
    return path


def lstm_weights():
    from experiments.lstm import weights
    return weights.weights()


def lstm_cases():
    from experiments.lstm import weights
    return {f"n = {n}": {"x": weights.sequence(n)} for n in (9, 27, 54)}


def lstm_module():
    from experiments.lstm.model import make_module
    return make_module()


def tree_source(folder):
    from experiments.tree_lstm.experiment import nimble_models
    (folder / "tree-lstm").mkdir(parents=True, exist_ok=True)
    return next(iter(nimble_models(folder / "tree-lstm").values()))


def tree_weights():
    from experiments.tree_lstm import weights
    return weights.weights()


def tree_cases():
    from experiments.tree_lstm import weights
    return {f"{n} words": weights.trees()[n][0] for n in (6, 19, 37)}


def tree_module(by_level=False):
    from experiments.tree_lstm.model import make_module
    return make_module(by_level)


def bert(name, precision, tolerance, *options):
    return Model(name, bert_source, bert_weights, bert_cases, bert_module, "last_hidden_state",
                 tolerance, options, precision)


MODELS = {model.name: model for model in (
    bert("bert-base", "f32", 1e-5),
    bert("bert-base-tf32", "tf32", 5e-3, "--precision", "tf32"),
    bert("bert-base-bf16", "bf16", 5e-2, "--precision", "bf16"),
    Model("lstm", lstm_source, lstm_weights, lstm_cases, lstm_module, "y", 1e-5, bar=1.5),
    # Its steps a kernel each, beside one for all of them.
    Model("lstm-loop", lstm_source, lstm_weights, lstm_cases, lstm_module, "y", 1e-5,
          ("--disable-pass", "join-steps"), bar=1.5),
    Model("tree-lstm", tree_source, tree_weights, tree_cases, tree_module, "h", 1e-5, trees=True,
          bar=2.0),
)}


def error(result, reference):
    """The largest difference over the largest number of the reference; 0 of nothing."""
    if result.shape != reference.shape:
        return float("inf")
    if reference.size == 0:
        return 0.0
    difference = np.abs(result.astype(np.float64) - reference).max()
    return float(difference / max(np.abs(reference).max(), 1e-30))
