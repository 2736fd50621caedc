"""MiniLM sentence embeddings over the lengths of MRPC's sentence pairs, batch 1."""

import numpy as np

from experiments.harness import systems, workload
from experiments.harness.experiment import ROOT, Experiment

HERE = ROOT / "experiments" / "minilm"
CLS, SEP, FIRST_WORD, VOCABULARY = 101, 102, 1000, 30522


def inputs(length):
    """Returns random words between [CLS] and [SEP], nothing masked."""
    ids = np.random.default_rng(length).integers(FIRST_WORD, VOCABULARY, (1, length))
    ids[0, 0] = CLS
    ids[0, -1] = SEP
    return {"input_ids": ids, "attention_mask": np.ones((1, length), np.int64)}


def make_module():
    from experiments.minilm.model import make_module as make
    return make()


def export(folder):
    """Exports with PyTorch's TorchScript exporter and attention written out, then runs ONNX
    Runtime's own transformer optimizer for its copy.

    Of both exporters and both ways to write attention this pair was the fastest in ONNX Runtime
    and in OpenVINO at every length: only from it does the optimizer make fused attention.
    """
    import torch
    from onnxruntime.transformers import optimizer
    module = make_module()
    module.bert.set_attn_implementation("eager")
    names = list(inputs(2))
    example = tuple(torch.from_numpy(np.repeat(a, 2, axis=0)) for a in inputs(20).values())
    torch.onnx.export(
        module, example, str(folder / "model.onnx"), dynamo=False, opset_version=17,
        input_names=names, output_names=["sentence_embedding"],
        dynamic_axes={**{name: {0: "b", 1: "n"} for name in names}, "sentence_embedding": {0: "b"}})
    config = module.bert.config
    optimized = optimizer.optimize_model(
        str(folder / "model.onnx"), model_type="bert", num_heads=config.num_attention_heads,
        hidden_size=config.hidden_size, opt_level=0, use_gpu=False)
    fused = optimized.get_fused_operator_statistics()["Attention"]
    if fused != config.num_hidden_layers:
        raise RuntimeError(f"ONNX Runtime's optimizer fused {fused} of {config.num_hidden_layers} "
                           "attentions: the peer would not be at its best")
    optimized.save_model_to_file(str(folder / "onnxruntime.onnx"))


def nimble_models(folder):
    from experiments.minilm.model import folder as model_folder
    return {"nimble": str(model_folder())}


EXPERIMENT = Experiment(
    name="minilm", title="all-MiniLM-L6-v2, f32, MRPC sentence pairs", 
    histogram=lambda: workload.histogram(("pair",)), peers=systems.ONNX_PEERS,
    threads=(2,), output="sentence_embedding", tolerance=1e-5, inputs=inputs,
    make_module=make_module, export=export,
    sources=(HERE / "experiment.py", HERE / "model.py"), nimble_models=nimble_models,
    trace="experiments/workloads/mrpc-token-lengths.tsv:pair")
