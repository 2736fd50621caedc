"""What an experiment is: a model, its inputs by length, its workload and how peers get the model.

An experiment is a folder experiments/NAME; a hyphen of its name is an underscore there. A module
experiment.py defines EXPERIMENT, which the harness compares with its peers. What compares no speeds
has a module program.py instead, whose main(arguments) is all of it. Nothing else lists them.
"""

import dataclasses
import importlib
import pathlib
from typing import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "experiments"  # exported models, compiled executables, logs of workers


def _folders_with(module):
    found = {path.parent.name for path in (ROOT / "experiments").glob(f"*/{module}.py")}
    return tuple(sorted(name.replace("_", "-") for name in found - {"harness"}))


NAMES = _folders_with("experiment")
PROGRAMS = _folders_with("program")


@dataclasses.dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    histogram: Callable  # () → {length: how often it occurs}
    threads: tuple  # thread counts measured when the user names none
    output: str  # the one output that is compared
    tolerance: float  # largest absolute difference from PyTorch eager
    # inputs(length) → {name: numpy array}, the same bits in every process.
    inputs: Callable
    make_module: Callable  # () → torch module called with the inputs by name
    # nimble_models(folder) → {system: model argument of `nimble`}
    nimble_models: Callable
    peers: tuple  # names in systems.PEERS; the first one's results are the reference
    nimble: str = "nimble"  # the system of systems.NIMBLE that peers are compared with
    # export(folder): writes folder/model.onnx (dynamic dims) and folder/onnxruntime.onnx, the same
    # model after what ONNX Runtime recommends to run offline. None: no peer reads ONNX.
    export: Callable | None = None
    sources: tuple = ()  # files that the exported models depend on
    trace: str | None = None  # --trace argument that tunes for this workload
    # prepare(peers): builds what these peers need, before any is started.
    prepare: Callable = lambda peers: None
    # calibration() → inputs by name, those that quantisers of peers may see.
    calibration: Callable | None = None
    any_length: bool = True  # inputs() can make lengths that do not occur
    # Of experiments on trees: make_value(model, tree) → nimble_ctypes.Value; dynet_arguments() →
    # the arrays that peers/dynet.py starts with.
    make_value: Callable | None = None
    dynet_arguments: Callable | None = None
    # inputs_per_run(length): how many inputs one run takes, one after the other; times are given
    # per input.
    inputs_per_run: Callable = lambda length: 1
    nimble_options: tuple = ()  # further arguments of `nimble compile` and `nimble tune`
    context: int = 0  # positions of a decoder
    long_runs: bool = False  # one run is a burst: it has many steps of its own
    # What peers that don't read ONNX are made from: make_tensorflow() → a function of the inputs by
    # name, traced by tf.function; make_mxnet() → one of NDArrays by name; make_tvm() → a Relax
    # module, which drive_tvm(virtual machine) makes a function of the inputs in their order (None:
    # its `main` is that).
    make_tensorflow: Callable | None = None
    make_mxnet: Callable | None = None
    make_tvm: Callable | None = None
    drive_tvm: Callable | None = None
    # tuning_histogram() → {length: occurrences} that tuning may see, where it is kept apart from
    # what is reported. It takes the place of `trace`.
    tuning_histogram: Callable | None = None
    # Further cases of this folder, Experiments by themselves, called NAME/VARIANT; `case` names
    # each in tables.
    variants: tuple = ()
    case: str = ""
    # Of experiments whose systems compute in types of their own: {system: further arguments of
    # `nimble compile` and `nimble tune`}; the peers that the best is sought among (None: all);
    # peers whose results alone are asked for.
    system_options: dict = dataclasses.field(default_factory=dict)
    rivals: tuple | None = None
    untimed: tuple = ()
    # Modules: whose Run carries the experiment out, and whose Server answers for its systems
    # (harness/worker.py).
    runner: str = "experiments.harness.run"
    server: str = "experiments.harness.worker"


def _module(name, module):
    return importlib.import_module(f"experiments.{name.replace('-', '_')}.{module}")


def load(name):
    """Returns EXPERIMENT of experiments/NAME/experiment.py, or of NAME/VARIANT that variant."""
    found = _module(name.partition("/")[0], "experiment").EXPERIMENT
    return {one.name: one for one in (found, *found.variants)}[name]


def load_program(name):
    """Returns main(arguments) of experiments/NAME/program.py."""
    return _module(name, "program").main
