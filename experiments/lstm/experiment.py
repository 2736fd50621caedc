"""A one-layer LSTM 300 → 512 over the lengths of MRPC's single sentences, batch 1."""

import shutil

from experiments.harness import systems, workload
from experiments.harness.experiment import ROOT, Experiment
from experiments.lstm import weights

HERE = ROOT / "experiments" / "lstm"
TEXT_IR = HERE / "lstm.nir"  # the same model written by hand as a loop


def inputs(length):
    return {"x": weights.sequence(length)}


def make_module():
    from experiments.lstm.model import make_module as make
    return make()


def export(folder):
    """Exports with the dynamo exporter: one ONNX LSTM node between two that adapt its layout.
    There is nothing for an offline optimizer to do."""
    import torch
    example = torch.from_numpy(inputs(20)["x"])
    torch.onnx.export(
        make_module(), (example,), str(folder / "model.onnx"), dynamo=True, external_data=False,
        dynamic_shapes=({0: torch.export.Dim("n")},), input_names=["x"], output_names=["y"],
        verbose=False)
    shutil.copyfile(folder / "model.onnx", folder / "onnxruntime.onnx")


def nimble_models(folder):
    """The ONNX file and, where it is written, the loop in text IR with its weights beside it."""
    models = {"nimble": str(folder / "model.onnx")}
    if TEXT_IR.exists():
        shutil.copyfile(TEXT_IR, folder / TEXT_IR.name)
        weights.save_safetensors(folder / "lstm.nir.safetensors")
        models["nimble_loop"] = str(folder / TEXT_IR.name)
    return models


EXPERIMENT = Experiment(
    name="lstm", title="LSTM 300 → 512, one layer, f32, MRPC single sentences",
    
    histogram=lambda: workload.histogram(("first", "second")), peers=systems.ONNX_PEERS, threads=(1, 2), output="y", tolerance=1e-5, inputs=inputs,
    make_module=make_module, export=export,
    sources=(HERE / "experiment.py", HERE / "model.py", HERE / "weights.py"),
    nimble_models=nimble_models, trace="experiments/workloads/mrpc-token-lengths.tsv:first")
