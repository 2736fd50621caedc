"""Records a few of the onnx package's own node tests per operator, for nimble-frontend-test.

    PYTHONPATH=. .venv-experiments/bin/python compiler/frontend/test/record_backend_tests.py

Writes test/data/backend_tests.npz: CASE/model (the bytes of the model), CASE/in/NAME, CASE/out/NAME,
CASE/tolerance (relative, absolute).
The whole set runs by `experiments/run onnx-conformance`; this is the part that every build checks,
by the reference interpreter.
"""

import pathlib

import numpy as np
import onnx
from onnx import numpy_helper

from experiments.onnx_conformance import cases

DATA = pathlib.Path(__file__).parent / "data"
PER_OPERATOR, MOST_BYTES = 2, 6000
# What nimble does not import, with the reasons in docs/onnx-operators.md.
LEFT_OUT = {"BitCast", "Bernoulli", "ImageDecoder", "TfIdfVectorizer", "SequenceMap"}
# Inputs that must be constants.
FIXED = {"axes", "axis", "scales", "roi", "image_shape", "block_shape", "frame_step",
         "frame_length", "num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz",
         "upper_edge_hertz"}
DTYPES = {np.dtype(name) for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16",
                                      "uint32", "uint64", "float16", "float32", "float64")}


def main():
    arrays, chosen = {}, {}
    for case in cases.collect():
        if case.suite != "node" or case.operator in LEFT_OUT:
            continue
        inputs, outputs = case.data_sets[0]
        values = [np.asarray(v) for v in [*inputs, *outputs]]
        if ("training" in case.name
                or case.model.opset_import[0].version < 6
                or any(v.dtype not in DTYPES for v in values)
                or sum(v.nbytes for v in values) > MOST_BYTES
                or chosen.get(case.operator, 0) == PER_OPERATOR):
            continue
        chosen[case.operator] = chosen.get(case.operator, 0) + 1
        model = onnx.ModelProto.FromString(case.model.SerializeToString())
        for value, array in zip(model.graph.input, inputs):
            if value.name in FIXED:
                model.graph.initializer.append(numpy_helper.from_array(np.asarray(array),
                                                                       value.name))
            else:
                arrays[f"{case.name}/in/{value.name}"] = np.asarray(array)
        for value, array in zip(model.graph.output, outputs):
            arrays[f"{case.name}/out/{value.name}"] = np.asarray(array)
        arrays[f"{case.name}/tolerance"] = np.array([case.rtol, case.atol])
        arrays[f"{case.name}/model"] = np.frombuffer(model.SerializeToString(), np.uint8)
    np.savez_compressed(DATA / "backend_tests.npz", **arrays)
    print(sum(chosen.values()), "cases of", len(chosen), "operators")


if __name__ == "__main__":
    main()
