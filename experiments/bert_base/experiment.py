"""BERT-base, batch 1, over the lengths of MRPC's sentence pairs: the Nimble paper's Table 3.

Tuning sees the pairs of even length, the table reports those of odd length.
"""

from experiments.bert_base import weights
from experiments.harness import systems, workload
from experiments.harness.experiment import ROOT, Experiment

HERE = ROOT / "experiments" / "bert_base"


def make_module():
    from experiments.bert_base.model import make_module as make
    return make()


def make_tensorflow():
    from experiments.bert_base.tensorflow_model import make_function
    return make_function()


def make_mxnet():
    from experiments.bert_base.mxnet_model import make_function
    return make_function()


def make_tvm():
    from experiments.bert_base.tvm_model import make_module as make
    return make()


def export(folder):
    """Exports as the minilm experiment does: the TorchScript exporter, attention written out, and
    for ONNX Runtime its own transformer optimizer."""
    import numpy as np
    import torch
    from onnxruntime.transformers import optimizer
    module = make_module()
    module.bert.set_attn_implementation("eager")
    example = {name: torch.from_numpy(np.repeat(array, 2, axis=0))
               for name, array in weights.inputs(20).items()}
    torch.onnx.export(
        module, tuple(example.values()), str(folder / "model.onnx"), dynamo=False,
        opset_version=17, input_names=list(example), output_names=["last_hidden_state"],
        dynamic_axes={name: {0: "b", 1: "n"} for name in (*example, "last_hidden_state")})
    optimized = optimizer.optimize_model(
        str(folder / "model.onnx"), model_type="bert", num_heads=weights.HEADS,
        hidden_size=weights.WIDTH, opt_level=0, use_gpu=False)
    fused = optimized.get_fused_operator_statistics()["Attention"]
    if fused != weights.LAYERS:
        raise RuntimeError(f"ONNX Runtime's optimizer fused {fused} of {weights.LAYERS} "
                           "attentions: the peer would not be at its best")
    optimized.save_model_to_file(str(folder / "onnxruntime.onnx"))


def histogram():
    return workload.split(workload.histogram(("pair",)))[1]


def tuning_histogram():
    return workload.split(workload.histogram(("pair",)))[0]


EXPERIMENT = Experiment(
    name="bert-base", title="BERT-base, f32, drawn weights, MRPC sentence pairs",
    histogram=histogram, tuning_histogram=tuning_histogram, peers=systems.TABLE_PEERS,
    threads=(2,), output="last_hidden_state", tolerance=5e-5, inputs=weights.inputs,
    make_module=make_module, make_tensorflow=make_tensorflow, make_mxnet=make_mxnet,
    make_tvm=make_tvm, export=export,
    sources=(HERE / "experiment.py", HERE / "model.py", HERE / "weights.py"),
    nimble_models=lambda folder: {"nimble": str(folder / "model.onnx")})
