"""What an experiment is: a model, its inputs by length, its workload and how peers get the model.

An experiment is a folder experiments/NAME with a module experiment.py that defines EXPERIMENT.
"""

import dataclasses
import importlib
import pathlib
from typing import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "experiments"  # exported models, compiled executables, logs of workers
NAMES = ("minilm", "lstm")


@dataclasses.dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    # Columns of experiments/workloads/mrpc-token-lengths.tsv that are counted together.
    columns: tuple
    threads: tuple  # thread counts measured when the user names none
    output: str  # the one output that is compared
    tolerance: float  # largest absolute difference from PyTorch eager
    # inputs(length) → {name: numpy array}, the same bits in every process.
    inputs: Callable
    make_module: Callable  # () → torch module called with the inputs by name
    # export(folder): writes folder/model.onnx (dynamic dims) and folder/onnxruntime.onnx, the same
    # model after what ONNX Runtime recommends to run offline.
    export: Callable
    sources: tuple  # files that the exported models depend on
    # nimble_models(folder) → {system: (model argument of `nimble`, remark)}
    nimble_models: Callable
    trace: str  # --trace argument that tunes for this workload


def load(name):
    """Returns EXPERIMENT of experiments/NAME/experiment.py."""
    return importlib.import_module(f"experiments.{name}.experiment").EXPERIMENT
