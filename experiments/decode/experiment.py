"""Greedy decoding with a six-layer GPT-2-like decoder, batch 1: whole sequences.

What the harness calls a length is the number of tokens of a finished sequence; a run takes the
same prompt of 16 tokens to there. ONNX Runtime runs the step that PyTorch exported in a loop of the
caller, and once more a model with caches for the whole context that its own attention operator
extends in place; nimble runs the exported step in the loop that `nimble compile --decode greedy`
puts around it. The times of two lengths give the latency of a step between their positions:
positions.py.

Two further cases have the matrices in 4 bits (quantised.py), by the same tool for all, with
activations in f32 and rounded to bytes. The tokens must be equal within each case.
"""

import dataclasses
import functools

import numpy as np

from experiments.decode import quantised, weights
from experiments.harness.experiment import ROOT, Experiment

HERE = ROOT / "experiments" / "decode"
CONFIG = weights.CONFIGS["small"]
PROMPT = 16
LENGTHS = (32, 64, 128, 256, 512, 1024)


def inputs(length):
    return {"input_ids": weights.prompt(CONFIG, PROMPT)[None],
            "max_new": np.array(length - PROMPT, np.int64)}


def make_module():
    from experiments.decode.model import make_module as make
    return make(CONFIG)


def export(folder):
    """The step by PyTorch's exporter, and what ONNX Runtime's tools for generation make of it."""
    from experiments.decode import model, shared_cache
    model.export(CONFIG, folder / "model.onnx")
    shared_cache.export(CONFIG, folder / "onnxruntime.onnx")


def export_quantised(level, folder):
    quantised.export(CONFIG, folder, level)


PLAIN = Experiment(
    name="decode", title="Greedy decoding, 6 layers of 384, 8,000 tokens, f32, prompt of 16",
    histogram=lambda: dict.fromkeys(LENGTHS, 1), threads=(1, 2), output="sequences", tolerance=0,
    inputs=inputs, make_module=make_module, export=export,
    sources=(HERE / "experiment.py", HERE / "model.py", HERE / "weights.py",
             HERE / "shared_cache.py"),
    nimble_models=lambda folder: {"nimble": str(folder / "model.onnx")},
    nimble_options=("--decode", "greedy", "--decode-context", str(CONFIG.context)),
    peers=("onnxruntime_decode", "onnxruntime_shared"), long_runs=True,
    context=CONFIG.context)


def in_4_bits(level):
    name, case = quantised.LEVELS[level]
    return dataclasses.replace(
        PLAIN, name=f"decode/{name}", case=case,
        export=functools.partial(export_quantised, level),
        sources=(*PLAIN.sources, HERE / "quantised.py"))


EXPERIMENT = dataclasses.replace(PLAIN, variants=tuple(map(in_4_bits, quantised.LEVELS)))
