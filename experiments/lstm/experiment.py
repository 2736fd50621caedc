"""LSTMs 300 → 512 of one and two layers over MRPC's single sentences, batch 1: the Nimble paper's
Table 1, as one operator and as a loop that a user writes.

Tuning sees the sentences of even length, the table reports those of odd length. The loop is the
same everywhere: layer after layer, step after step, both products in the step.
"""

import functools
import shutil

from experiments.harness import systems, workload
from experiments.harness.experiment import ROOT, Experiment
from experiments.lstm import weights

HERE = ROOT / "experiments" / "lstm"
COLUMNS = ("first", "second")


def inputs(length):
    return {"x": weights.sequence(length)}


def make_module(layers=1, loop=False):
    from experiments.lstm.model import make_module as make
    return make(layers, loop)


def make_tensorflow(layers, loop):
    from experiments.lstm import tensorflow_model
    return (tensorflow_model.make_loop if loop else tensorflow_model.make_fused)(layers)


def make_mxnet(layers, loop):
    from experiments.lstm import mxnet_model
    return (mxnet_model.make_loop if loop else mxnet_model.make_fused)(layers)


def make_tvm(layers, loop):
    from experiments.lstm import tvm_model
    return (tvm_model.make_step if loop else tvm_model.make_fused)(layers)


def drive_tvm(layers, machine):
    from experiments.lstm import tvm_model
    return tvm_model.drive_steps(layers, machine)


def export(layers, loop, folder):
    """Exports nn.LSTM with the dynamo exporter: one ONNX LSTM node a layer between nodes that adapt
    its layout. The loop is a Scan. There is nothing for an offline optimizer to do."""
    if loop:
        from experiments.lstm import onnx_loop
        onnx_loop.save(layers, folder / "model.onnx")
    else:
        import torch
        torch.onnx.export(
            make_module(layers), (torch.from_numpy(inputs(20)["x"]),), str(folder / "model.onnx"),
            dynamo=True, external_data=False, dynamic_shapes=({0: torch.export.Dim("n")},),
            input_names=["x"], output_names=["y"], verbose=False)
    shutil.copyfile(folder / "model.onnx", folder / "onnxruntime.onnx")


def nimble_models(layers, loop, folder):
    """The ONNX file, or the loop in text IR with its weights beside it."""
    if not loop:
        return {"nimble": str(folder / "model.onnx")}
    source = HERE / ("lstm2.nir" if layers == 2 else "lstm.nir")
    shutil.copyfile(source, folder / source.name)
    weights.save_safetensors(folder / f"{source.name}.safetensors", layers)
    return {"nimble": str(folder / source.name)}


def histogram():
    return workload.split(workload.histogram(COLUMNS))[1]


def tuning_histogram():
    return workload.split(workload.histogram(COLUMNS))[0]


def variant(name, layers, loop, variants=()):
    kind = "loop" if loop else "fused"
    return Experiment(
        name=name, title="LSTM 300 → 512, one and two layers, f32, MRPC single sentences",
        case=f"{layers} layer{'s' if layers > 1 else ''}, {kind}", variants=variants,
        histogram=histogram, tuning_histogram=tuning_histogram, peers=systems.TABLE_PEERS,
        threads=(1, 2), output="y", tolerance=1e-5, inputs=inputs,
        make_module=functools.partial(make_module, layers, loop),
        make_tensorflow=functools.partial(make_tensorflow, layers, loop),
        make_mxnet=functools.partial(make_mxnet, layers, loop),
        make_tvm=functools.partial(make_tvm, layers, loop),
        drive_tvm=functools.partial(drive_tvm, layers) if loop else None,
        export=functools.partial(export, layers, loop),
        sources=tuple(HERE / file for file in ("experiment.py", "model.py", "weights.py",
                                               "onnx_loop.py")),
        nimble_models=functools.partial(nimble_models, layers, loop))


EXPERIMENT = variant("lstm", 1, False, variants=(
    variant("lstm/loop-1", 1, True), variant("lstm/fused-2", 2, False),
    variant("lstm/loop-2", 2, True)))
