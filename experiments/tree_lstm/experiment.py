"""A child-sum Tree-LSTM 300/150 over the Stanford Sentiment Treebank's trees, one tree at a time.

What the harness calls a length is a number of words here; one pass runs all trees that have so
many, one after the other, and its time is given per tree.
"""

import shutil

import numpy as np

from experiments.harness.experiment import ROOT, Experiment
from experiments.tree_lstm import weights

HERE = ROOT / "experiments" / "tree_lstm"


def inputs(length):
    return {"trees": weights.trees()[length]}


def inputs_per_run(length):
    return len(weights.trees()[length])


def make_module(by_level=False):
    from experiments.tree_lstm.model import make_module as make
    return make(by_level)


def make_value(model, tree):
    """Returns a weights.Tree as a nimble_ctypes.Value; the words are copied into it."""
    from nimble_ctypes import Value
    table = weights.words()
    leaf, node = model.tag("Leaf"), model.tag("Node")
    return weights.fold(
        tree, lambda word: Value.fields(leaf, [Value.tensor(table[word:word + 1])]),
        lambda left, right: Value.fields(node, [left, right]))


def nimble_models(folder):
    model = folder / "tree_lstm.nir"
    shutil.copyfile(HERE / model.name, model)
    weights.write_safetensors(folder / "tree_lstm.nir.safetensors", weights.weights())
    return {"nimble_trees": str(model)}


def prepare(peers):
    if {"dynet", "dynet_batched"} & set(peers):
        from experiments.peers import dynet_build
        dynet_build.library()


def histogram():
    return {length: len(group) for length, group in weights.trees().items()}


def dynet_arguments():
    """Returns what peers/dynet_tree_lstm.cpp is made with: the vocabulary and the weights, its
    matrices column by column."""
    return [weights.words(), *(np.ascontiguousarray(value.T)
                               for value in weights.weights().values())]


def make_tvm():
    raise NotImplementedError("Relax has no recursive data types, so the model can't be said in it")


EXPERIMENT = Experiment(
    name="tree-lstm", title="Child-sum Tree-LSTM 300/150, f32, SST trees one at a time",
    histogram=histogram, threads=(1,), output="h", tolerance=1e-5, inputs=inputs,
    inputs_per_run=inputs_per_run, prepare=prepare, any_length=False,
    make_module=make_module, make_value=make_value,
    dynet_arguments=dynet_arguments, nimble_models=nimble_models,
    peers=("torch_trees", "torch_levels", "dynet", "dynet_batched", "tensorflow_trees", "xla_trees",
           "mxnet_trees", "tvm"), nimble="nimble_trees", make_tvm=make_tvm)
