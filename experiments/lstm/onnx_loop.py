"""The LSTM in ONNX as a loop that a user writes: one Scan over the steps a layer."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from experiments.lstm import weights


def layer(index, x, y, values):
    """Returns the nodes and initializers that compute y (n, 1, h) of x (n, 1, inputs)."""
    w_ih, w_hh, b_ih, b_hh = values
    hidden = weights.HIDDEN

    def name(text):
        return f"{text}_{index}"

    initializers = [numpy_helper.from_array(np.ascontiguousarray(value), name(text))
                    for text, value in (("w_ih", w_ih.T), ("w_hh", w_hh.T), ("b", b_ih + b_hh),
                                        ("zero", np.zeros((1, hidden), np.float32)))]

    def port(text, *shape):
        return helper.make_tensor_value_info(name(text), TensorProto.FLOAT, shape)

    def node(operator, inputs, outputs, **attributes):
        return helper.make_node(operator, [name(text) for text in inputs],
                                [name(text) for text in outputs], **attributes)

    body = helper.make_graph([
        node("MatMul", ("xt", "w_ih"), ("from_x",)), node("MatMul", ("h_in", "w_hh"), ("from_h",)),
        node("Add", ("from_x", "from_h"), ("sum",)), node("Add", ("sum", "b"), ("gates",)),
        node("Split", ("gates",), ("i", "f", "g", "o"), axis=1),
        node("Sigmoid", ("i",), ("si",)), node("Sigmoid", ("f",), ("sf",)),
        node("Tanh", ("g",), ("tg",)), node("Sigmoid", ("o",), ("so",)),
        node("Mul", ("sf", "c_in"), ("kept",)), node("Mul", ("si", "tg"), ("entered",)),
        node("Add", ("kept", "entered"), ("c_out",)), node("Tanh", ("c_out",), ("tc",)),
        node("Mul", ("so", "tc"), ("h_out",)), node("Identity", ("h_out",), ("row",))],
        name("step"),
        [port("h_in", 1, hidden), port("c_in", 1, hidden), port("xt", 1, w_ih.shape[1])],
        [port("h_out", 1, hidden), port("c_out", 1, hidden), port("row", 1, hidden)])
    scan = helper.make_node("Scan", [name("zero"), name("zero"), x],
                            [name("last_h"), name("last_c"), y], num_scan_inputs=1, body=body)
    return [scan], initializers


def save(layers, path):
    """Writes the model: x (n, 1, 300) → y (n, 1, 512)."""
    nodes, initializers, x = [], [], "x"
    for index, values in enumerate(weights.by_layer(layers)):
        y = "y" if index == layers - 1 else f"y_{index}"
        more, found = layer(index, x, y, values)
        nodes += more
        initializers += found
        x = y
    graph = helper.make_graph(
        nodes, "lstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 1, weights.INPUT))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 1, weights.HIDDEN))],
        initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
