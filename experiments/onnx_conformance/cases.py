"""The onnx package's backend tests as plain cases.

Node tests are generated, each with the version of its operator that the package writes; the other
suites lie as files in the package. Classes of node tests:

    node        what a compiler of numerical models can be asked for
    expanded    the same operators, as the functions of simpler operators that ONNX defines them by
    special     strings, sequences, optionals, ai.onnx.ml, training, types of less than a byte
"""

import dataclasses
import glob
import os
import warnings

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

SPECIAL_DOMAINS = ("ai.onnx.ml", "ai.onnx.preview.training")
SPECIAL_TYPES = {getattr(TensorProto, name) for name in
                 ("STRING", "UINT4", "INT4", "FLOAT4E2M1", "UINT2", "INT2")
                 if hasattr(TensorProto, name)}


RANDOM_OPERATORS = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike",
                    "RandomUniform", "RandomUniformLike"}


@dataclasses.dataclass
class Case:
    suite: str
    name: str
    operator: str  # of its first node
    model: onnx.ModelProto
    data_sets: list  # pairs of lists: inputs, expected outputs, by position
    rtol: float
    atol: float

    @property
    def drawn(self):
        """Whether the model draws numbers, which are not those that the package drew."""
        return any(node.op_type in RANDOM_OPERATORS or self.drops(node)
                   for node in self.model.graph.node)

    def drops(self, node):
        """Whether a node is Dropout that the case's data put into training mode."""
        if node.op_type != "Dropout" or len(node.input) < 3:
            return False
        given = dict(zip((value.name for value in self.model.graph.input), self.data_sets[0][0]))
        ratio = given.get(node.input[1], 0.5)
        return bool(given.get(node.input[2], False)) and bool(np.any(ratio))


def is_special(model):
    """Whether a model is about what the class `special` lists."""
    if any(node.domain in SPECIAL_DOMAINS for node in model.graph.node):
        return True
    for value in [*model.graph.input, *model.graph.output]:
        if not value.type.HasField("tensor_type"):
            return True
        if value.type.tensor_type.elem_type in SPECIAL_TYPES:
            return True
    return False


def load_data(folder, model):
    """Returns the pairs of one folder of test data."""
    sets = []
    for one in sorted(glob.glob(os.path.join(folder, "test_data_set*"))):
        sides = []
        for side, values in (("input", model.graph.input), ("output", model.graph.output)):
            count = len(glob.glob(os.path.join(one, f"{side}_*.pb")))
            sides.append([load_value(os.path.join(one, f"{side}_{i}.pb"), values[i].type)
                          for i in range(count)])
        sets.append(tuple(sides))
    return sets


def load_value(path, kind):
    with open(path, "rb") as file:
        data = file.read()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(TensorProto.FromString(data))


def plain(value):
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def collect():
    """Returns all cases, in a fixed order; generating them takes some ten seconds."""
    from onnx.backend.test import loader
    cases = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        tests = loader.load_model_tests(kind="node")
    for test in tests:
        suite = ("expanded" if "expanded" in test.name
                 else "special" if is_special(test.model) else "node")
        data = [([plain(v) for v in inputs], [plain(v) for v in outputs])
                for inputs, outputs in test.data_sets]
        cases.append(Case(suite, test.name, test.model.graph.node[0].op_type, test.model, data,
                          test.rtol, test.atol))
    for suite in ("simple", "pytorch-operator", "pytorch-converted"):
        for test in sorted(loader.load_model_tests(kind=suite), key=lambda t: t.name):
            model = onnx.load(os.path.join(test.model_dir, "model.onnx"))
            cases.append(Case(suite, test.name, model.graph.node[0].op_type, model,
                              load_data(test.model_dir, model), test.rtol, test.atol))
    return cases
