"""Records one small ONNX model per operator variant, and what ONNX Runtime makes of it.

    .venv-experiments/bin/python compiler/frontend/test/record_operators.py

Writes test/data/operators/NAME.onnx and test/data/operators.npz with arrays `NAME/VALUE`. Inputs
have symbolic dims wherever the variant allows. `experiments/run --setup` makes the virtual
environment.
"""

import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

DATA = pathlib.Path(__file__).parent / "data"
RANDOM = np.random.default_rng(5)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(values):
    return np.array(values, np.int64)


class Case:
    """One node (or a few) over `inputs` {name: (array, dims)} and constants."""

    def __init__(self, nodes, inputs, outputs=("y",), constants=None, opset=18):
        self.nodes = nodes if isinstance(nodes, list) else [nodes]
        self.inputs, self.outputs = inputs, outputs
        self.constants, self.opset = constants or {}, opset

    def model(self):
        kinds = {np.float32: TensorProto.FLOAT, np.int64: TensorProto.INT64,
                 np.bool_: TensorProto.BOOL, np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}
        inputs = [helper.make_tensor_value_info(n, kinds[a.dtype.type], dims)
                  for n, (a, dims) in self.inputs.items()]
        outputs = [onnx.ValueInfoProto(name=n) for n in self.outputs]
        initialisers = [numpy_helper.from_array(a, n) for n, a in self.constants.items()]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, initialisers)
        domains = {"": self.opset} | {n.domain: 1 for n in self.nodes if n.domain}
        return helper.make_model(graph, ir_version=8, opset_imports=[
            helper.make_opsetid(domain, version) for domain, version in domains.items()])


def bytes_of(kind, *shape):
    return RANDOM.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)


def matmul_integer(left, right, zeros=True, constant=True):
    """With a zero point for the left operand and one for each column of the right, which is a
    constant or an input."""
    constants = {"w": bytes_of(right, 6, 4)}
    if zeros:
        constants |= {"xz": bytes_of(left), "wz": bytes_of(right, 4)}
    inputs = {"x": (bytes_of(left, 2, 3, 6), ["b", "m", 6])}
    if not constant:
        inputs |= {name: (array, list(array.shape)) for name, array in constants.items()}
        constants = {}
    return Case(node("MatMulInteger", "x,w,xz,wz" if zeros else "x,w"), inputs, constants=constants)


def matmul_nbits(k, n, block, bits=4, zeros=None, bias=False, constant=True):
    """ONNX Runtime's product with weights of 4 or 8 bits in blocks; zeros: None, "bytes", "floats"."""
    blocks = -(-k // block)
    names = ["x", "w", "s"]
    more = {"w": bytes_of(np.uint8, n, blocks, block * bits // 8),
            "s": np.float32(0.16 / 2**bits) * np.abs(floats(n * blocks))}
    if zeros == "bytes":
        more["z"] = bytes_of(np.uint8, n * -(-blocks * bits // 8))
    elif zeros == "floats":
        more["z"] = RANDOM.uniform(0, 2**bits, (n * blocks)).astype(np.float32)
    if bias:
        more["b"] = floats(n)
    names += ["z" if zeros else "", "", "b"] if bias else ["z"] if zeros else []
    inputs = {"x": (floats(2, 3, k), ["b", "m", k])}
    if not constant:
        inputs |= {name: (array, list(array.shape)) for name, array in more.items()}
    return Case(node("MatMulNBits", ",".join(names), domain="com.microsoft", K=k, N=n, bits=bits,
                     block_size=block),
                inputs, constants=more if constant else {})


def node(op, inputs="x", outputs="y", **attributes):
    return helper.make_node(op, inputs.split(","), outputs.split(","), **attributes)


def unary(op, x=None, **attributes):
    opset = attributes.pop("opset", 18)
    return Case(node(op, **attributes), {"x": (floats(3, 5) if x is None else x, ["m", 5])},
                opset=opset)


def recurrent(op, gates, direction, bias, state, linear=1):
    n, b, width, h = 5, 3, 4, 6
    d = 2 if direction == "bidirectional" else 1
    constants = {"w": floats(d, gates * h, width), "r": floats(d, gates * h, h)}
    names = ["x", "w", "r", "", "", "", ""][:7 if op == "LSTM" else 6]
    inputs = {"x": (floats(n, b, width), ["n", "b", width])}
    if bias:
        constants["bias"], names[3] = floats(d, 2 * gates * h), "bias"
    if state:
        inputs["h0"], names[5] = (floats(d, b, h), [d, "b", h]), "h0"
        if op == "LSTM":
            inputs["c0"], names[6] = (floats(d, b, h), [d, "b", h]), "c0"
    outputs = ["y", "h", "c"] if op == "LSTM" else ["y", "h"]
    options = {} if op == "LSTM" else {"linear_before_reset": linear}
    return Case(helper.make_node(op, names, outputs, hidden_size=h, direction=direction, **options),
                inputs, outputs, constants)


X4 = (floats(2, 3, 9, 8), ["b", 3, "h", "w"])
X3 = (floats(2, 3, 9), ["b", 3, "n"])
INDICES = ints([[0, 2], [1, -1]])

CASES = {
    "elu": unary("Elu", alpha=0.7),
    "leaky_relu": unary("LeakyRelu", alpha=0.3),
    "hard_sigmoid": unary("HardSigmoid", alpha=0.3, beta=0.4),
    "hard_swish": unary("HardSwish", x=floats(3, 5) * 4),
    "sign": unary("Sign", x=np.array([[-2, 0, 3, -0.5, 1]], np.float32)),
    "softplus": unary("Softplus"),
    "gelu_tanh": unary("Gelu", approximate="tanh", opset=20),
    "is_nan": unary("IsNaN", x=np.array([[1, np.nan, 2, np.nan, 0]], np.float32)),
    "clip_old": unary("Clip", min=-0.5, max=0.25, opset=9),
    "clip_new": Case(node("Clip", "x,,high"), {"x": (floats(3, 5), ["m", 5])},
                     constants={"high": np.float32(0.1)}),
    "prelu": Case(node("PRelu", "x,slope"), {"x": (floats(3, 5), ["m", 5])},
                  constants={"slope": floats(5)}),
    "pow_square": Case(node("Pow", "x,e"), {"x": (floats(3, 5), ["m", 5])},
                       constants={"e": np.float32(2)}),
    "pow_general": Case(node("Pow", "x,e"), {"x": (np.abs(floats(3, 5)), ["m", 5])},
                        constants={"e": floats(5)}),
    "max_of_three": Case(node("Max", "x,a,b"), {"x": (floats(3, 5), ["m", 5])},
                         constants={"a": floats(5), "b": floats(1, 5)}),
    "mean_of_two": Case(node("Mean", "x,a"), {"x": (floats(3, 5), ["m", 5])},
                        constants={"a": floats(5)}),
    "xor": Case([node("Greater", "x,zero", "p"), node("Less", "x,one", "q"), node("Xor", "p,q")],
                {"x": (floats(3, 5), ["m", 5])},
                constants={"zero": np.float32(0), "one": np.float32(1)}),
    "mod": Case(node("Mod", "x,d"), {"x": (ints([[7, -7, 8]]), ["m", 3])},
                constants={"d": ints([3, 3, -5])}),
    "integer_div": Case(node("Div", "x,d"), {"x": (ints([[7, -7, 8]]), ["m", 3])},
                        constants={"d": ints([3, 3, -5])}),
    "softmax_old": Case(node("Softmax", axis=1), {"x": (floats(2, 3, 4), ["b", 3, "n"])}, opset=11),
    "softmax_middle": Case(node("Softmax", axis=1), {"x": (floats(2, 3, 4), ["b", 3, "n"])}),
    "log_softmax": unary("LogSoftmax", axis=-1),
    "layer_norm_two_axes": Case(node("LayerNormalization", "x,g", axis=1, epsilon=0.01),
                                {"x": (floats(4, 3, 5), ["b", 3, 5])},
                                constants={"g": floats(3, 5)}),
    "reduce_l2": Case(node("ReduceL2", "x,a", keepdims=0), {"x": (floats(3, 5), ["m", 5])},
                      constants={"a": ints([1])}),
    "reduce_l1": Case(node("ReduceL1", "x,a"), {"x": (floats(3, 5), ["m", 5])},
                      constants={"a": ints([-1])}),
    "reduce_all": Case(node("ReduceSumSquare", keepdims=0), {"x": (floats(3, 5), ["m", 5])}),
    "reduce_old": Case(node("ReduceProd", axes=[0]), {"x": (floats(3, 5), ["m", 5])}, opset=13),
    "argmax": Case(node("ArgMax", axis=1, keepdims=0), {"x": (floats(3, 5), ["m", 5])}),
    "cumsum": Case(node("CumSum", "x,a", exclusive=1, reverse=1), {"x": (floats(3, 5), ["m", 5])},
                   constants={"a": ints(1)}),
    "gemm": Case(node("Gemm", "x,w,c", alpha=0.5, beta=2.0, transA=1),
                 {"x": (floats(4, 3), [4, "m"])}, constants={"w": floats(4, 5), "c": floats(5)}),
    "matmul_vector": Case(node("MatMul", "x,w"), {"x": (floats(2, 3, 4), ["b", "n", 4])},
                          constants={"w": floats(4)}),
    "split_sizes": Case([node("Split", "x,s", "a,b,c", axis=1)], {"x": (floats(3, 6), ["m", 6])},
                        ("a", "b", "c"), {"s": ints([1, 2, 3])}),
    "split_uneven": Case(node("Split", "x", "a,b", axis=1, num_outputs=2),
                         {"x": (floats(3, 5), ["m", 5])}, ("a", "b")),
    "split_old": Case(node("Split", "x", "a,b", axis=-1, split=[4, 2]),
                      {"x": (floats(3, 6), ["m", 6])}, ("a", "b"), opset=11),
    "slice_steps": Case(node("Slice", "x,s,e,a,t"), {"x": (floats(7, 6), ["m", 6])},
                        constants={"s": ints([-1, 1]), "e": ints([-100, 100]), "a": ints([0, 1]),
                                   "t": ints([-2, 2])}),
    "slice_old": Case(node("Slice", starts=[1, -3], ends=[99, -1], axes=[0, 1]),
                      {"x": (floats(7, 6), ["m", 6])}, opset=9),
    "tile": Case(node("Tile", "x,r"), {"x": (floats(2, 3), ["m", 3])},
                 constants={"r": ints([2, 3])}),
    "pad": Case(node("Pad", "x,p,v"), {"x": (floats(2, 3), ["m", 3])},
                constants={"p": ints([1, 0, 2, 1]), "v": np.float32(7)}),
    "expand": Case([node("Shape", "x", "s"), node("Concat", "two,s", "t", axis=0),
                    node("Expand", "row,t")], {"x": (floats(3, 5), ["m", 5])},
                   constants={"two": ints([2]), "row": floats(1, 5)}),
    "flatten_reshape": Case([node("Flatten", "x", "f", axis=2), node("Reshape", "f,s")],
                            {"x": (floats(2, 3, 4), ["b", 3, "n"])},
                            constants={"s": ints([0, -1, 1])}),
    "size_range": Case([node("Shape", "x", "s", start=0, end=1), node("Squeeze", "s", "m"),
                        node("Range", "zero,m,two")], {"x": (floats(7, 2), ["m", 2])},
                       constants={"zero": ints(0), "two": ints(2)}),
    "gather_nd": Case(node("GatherND", "x,i"), {"x": (floats(2, 3, 4), ["b", "n", 4])},
                      constants={"i": INDICES}),
    "gather_nd_rows": Case(node("GatherND", "x,i"),
                           {"x": (floats(2, 3), ["b", "n"]), "i": (INDICES, ["k", 2])}),
    "conv_one_axis": Case(node("Conv", "x,w,c", strides=[2], pads=[1, 2], dilations=[2]),
                          {"x": X3}, constants={"w": floats(4, 3, 3), "c": floats(4)}),
    "conv_same_upper": Case(node("Conv", "x,w", auto_pad="SAME_UPPER"), {"x": X4},
                            constants={"w": floats(4, 3, 4, 2)}),
    "conv_same_lower_stride": Case(node("Conv", "x,w", auto_pad="SAME_LOWER", strides=[2, 3]),
                                   {"x": (X4[0], ["b", 3, 9, 8])},
                                   constants={"w": floats(4, 3, 4, 2)}),
    "conv_groups": Case(node("Conv", "x,w", group=3, pads=[1, 0, 0, 1]), {"x": X4},
                        constants={"w": floats(6, 1, 3, 3)}),
    "max_pool_ceil": Case(node("MaxPool", kernel_shape=[3, 2], strides=[2, 3], ceil_mode=1),
                          {"x": X4}),
    "max_pool_one_axis": Case(node("MaxPool", kernel_shape=[3], dilations=[2]), {"x": X3}),
    "average_pool_padded": Case(node("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1],
                                     strides=[2, 2]), {"x": X4}),
    "average_pool_counted": Case(node("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1],
                                      count_include_pad=1), {"x": X4}),
    "global_max_pool": Case(node("GlobalMaxPool"), {"x": X4}),
    "lstm_plain": recurrent("LSTM", 4, "forward", False, False),
    "lstm_reverse": recurrent("LSTM", 4, "reverse", True, True),
    "lstm_both": recurrent("LSTM", 4, "bidirectional", True, True),
    "gru_plain": recurrent("GRU", 3, "forward", False, True),
    "gru_reverse": recurrent("GRU", 3, "reverse", True, False),
    "gru_both_reset_first": recurrent("GRU", 3, "bidirectional", True, True, linear=0),
    # Extents that only the run knows: shapes and bounds as inputs of the graph.
    "reshape_by_input": Case(node("Reshape", "x,s"),
                             {"x": (floats(2, 6), ["m", 6]), "s": (ints([1, 0, -1]), [3])}),
    "expand_by_input": Case(node("Expand", "x,s"),
                            {"x": (floats(3, 1), ["m", 1]), "s": (ints([2, 1, 4]), [3])}),
    "slice_by_input": Case(node("Slice", "x,s,e,a,t"),
                           {"x": (floats(7, 6), ["m", 6]), "s": (ints([-1, 1]), [2]),
                            "e": (ints([-100, 2**62]), [2]), "t": (ints([-2, 3]), [2])},
                           constants={"a": ints([0, 1])}),
    "tile_by_input": Case(node("Tile", "x,r"),
                          {"x": (floats(2, 3), ["m", 3]), "r": (ints([2, 0]), [2])}),
    "pad_by_input": Case(node("Pad", "x,p,v"),
                         {"x": (floats(2, 3), ["m", 3]), "p": (ints([1, -1, 2, 1]), [4])},
                         constants={"v": np.float32(7)}),
    "range_by_input": Case(node("Range", "a,b,c"),
                           {"a": (ints(7), []), "b": (ints(-6), []), "c": (ints(-3), [])}),
    "range_of_floats": Case(node("Range", "a,b,c"),
                            {"a": (np.array(0.5, np.float32), []),
                             "b": (np.array(3, np.float32), []),
                             "c": (np.array(0.4, np.float32), [])}),
    "constant_of_shape_by_input": Case(node("ConstantOfShape", "s"), {"s": (ints([2, 3]), [2])}),
    "reshape_chain": Case([node("Cast", "k", "i", to=TensorProto.INT64),
                           node("Concat", "i,minus", "s", axis=0), node("Reshape", "x,s", "z"),
                           node("Add", "z,z")],
                          {"x": (floats(2, 6), ["m", 6]), "k": (floats(1) * 0 + 4, [1])},
                          constants={"minus": ints([-1])}),
    "nonzero": Case(node("NonZero"), {"x": (ints([[1, 0, 2], [0, 0, 3]]), ["m", 3])}),
    "nonzero_gathers": Case([node("Greater", "x,zero", "p"), node("NonZero", "p", "n"),
                             node("Transpose", "n", "t", perm=[1, 0]), node("GatherND", "x,t")],
                            {"x": (floats(3, 5), ["m", 5])}, constants={"zero": np.float32(0)}),
    "compress": Case(node("Compress", "x,c", axis=1),
                     {"x": (floats(3, 5), ["m", 5]),
                      "c": (np.array([True, False, True, True]), [4])}),
    "compress_flat": Case(node("Compress", "x,c"),
                          {"x": (floats(3, 2), ["m", 2]),
                           "c": (np.array([False, True, True, False, True]), ["k"])}),
    "unique": Case(node("Unique", "x", "y,i,v,c"),
                   {"x": (ints([[2, 1, 1], [3, 4, 3]]), ["m", 3])}, ("y", "i", "v", "c")),
    "unique_unsorted": Case(node("Unique", "x", "y,i,v,c", sorted=0),
                            {"x": (ints([2, 1, 1, 3, 4, 3]), ["m"])}, ("y", "i", "v", "c")),
    "unique_rows": Case(node("Unique", "x", "y,i,v,c", axis=0),
                        {"x": (ints([[1, 0], [1, 0], [0, 3], [1, 0]]), ["m", 2])},
                        ("y", "i", "v", "c")),
    "topk": Case(node("TopK", "x,k", "y,i", axis=0),
                 {"x": (floats(7, 4), ["m", 4])}, ("y", "i"), {"k": ints([3])}),
    "topk_by_input": Case(node("TopK", "x,k", "y,i", largest=0),
                          {"x": (ints([[3, 1, 2, 1, 3]]), ["m", 5]), "k": (ints([4]), [1])},
                          ("y", "i")),
    "nms": Case(node("NonMaxSuppression", "b,s,n,o,t"),
                {"b": (np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9],
                                  [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]]],
                                np.float32), [1, "n", 4]),
                 "s": (np.array([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3],
                                  [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]]], np.float32), [1, "c", "n"]),
                 "n": (ints([2]), [1])},
                constants={"o": np.array([0.5], np.float32), "t": np.array([0.25], np.float32)}),
    "nms_centers": Case(node("NonMaxSuppression", "b,s,n,o", center_point_box=1),
                        {"b": (np.abs(floats(2, 5, 4)), ["b", "n", 4]),
                         "s": (floats(2, 1, 5), ["b", 1, "n"])},
                        constants={"n": ints([4]), "o": np.array([0.3], np.float32)}),
    **{f"roi_align_adaptive_{form}": Case(
        node("RoiAlign", "x,r,i", output_height=3, output_width=2, sampling_ratio=0,
             spatial_scale=0.5, coordinate_transformation_mode=form),
        {"x": (floats(2, 3, 9, 7), ["n", 3, "h", "w"]),
         # A wide one, a high one, one within a pixel, one that leaves the image.
         "r": (np.array([[0, 0, 13, 4], [2, 1, 5, 17], [6.2, 3.1, 6.9, 3.6], [-3, -4, 30, 40]],
                        np.float32), ["k", 4]),
         "i": (ints([0, 1, 1, 0]), ["k"])})
       for form in ("half_pixel", "output_half_pixel")},
    **{f"matmul_integer_{left.__name__}_{right.__name__}": matmul_integer(left, right)
       for left in (np.uint8, np.int8) for right in (np.uint8, np.int8)},
    "matmul_integer_computed": matmul_integer(np.int8, np.uint8, constant=False),
    "matmul_integer_plain": matmul_integer(np.uint8, np.int8, zeros=False),
    "qlinear_matmul": Case(
        node("QLinearMatMul", "x,xs,xz,w,ws,wz,ys,yz"), {"x": (bytes_of(np.uint8, 5, 6), ["m", 6])},
        constants={"xs": np.float32(0.02), "xz": np.uint8(117), "w": bytes_of(np.int8, 6, 4),
                   "ws": np.abs(floats(4)) + np.float32(0.01), "wz": np.zeros(4, np.int8),
                   "ys": np.float32(3), "yz": np.uint8(130)}),
    "matmul_nbits": matmul_nbits(64, 5, 32),
    "matmul_nbits_bias": matmul_nbits(37, 5, 16, bias=True),
    "matmul_nbits_zeros": matmul_nbits(37, 6, 16, zeros="bytes", bias=True),
    "matmul_nbits_float_zeros": matmul_nbits(33, 6, 16, zeros="floats"),
    "matmul_nbits_bytes": matmul_nbits(40, 7, 32, bits=8),
    "matmul_nbits_bytes_zeros": matmul_nbits(40, 7, 16, bits=8, zeros="bytes"),
    "matmul_nbits_computed": matmul_nbits(37, 6, 16, zeros="bytes", constant=False),
}


def main():
    folder = DATA / "operators"
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for name, case in CASES.items():
        model = case.model()
        path = folder / f"{name}.onnx"
        onnx.save(model, path)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        inputs = {n: a for n, (a, _) in case.inputs.items()}
        accepted = {i.name for i in session.get_inputs()}
        results = session.run(None, {n: a for n, a in inputs.items() if n in accepted})
        arrays.update({f"{name}/{n}": a for n, a in inputs.items()})
        arrays.update({f"{name}/{n}": np.asarray(a)
                       for n, a in zip(case.outputs, results, strict=True)})
    np.savez(DATA / "operators.npz", **arrays)
    print(f"{len(CASES)} models")


if __name__ == "__main__":
    main()
