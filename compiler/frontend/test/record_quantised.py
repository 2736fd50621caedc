"""Records quantised ONNX models, what the ONNX standard makes of them and what ONNX Runtime does.

    .venv-experiments/bin/python compiler/frontend/test/record_quantised.py

Writes test/data/quantised/NAME.onnx and NAME.npz with members CASE.VALUE: the inputs, the results
of onnx.reference, and as CASE.VALUE.runtime those of ONNX Runtime. Operators of ONNX Runtime's own
domain have no reference: there its results stand for both. Sizes are symbolic, and several are
recorded. `experiments/run --setup` makes the virtual environment.
"""

import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

DATA = pathlib.Path(__file__).parent / "data" / "quantised"
KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.uint8): TensorProto.UINT8,
         np.dtype(np.int8): TensorProto.INT8, np.dtype(np.int32): TensorProto.INT32}


class Model:
    """Nodes over inputs {name: (kind, dims)}; an integer of dims is fixed, a name symbolic."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.constants, self.inputs = [], {}, {}

    def add(self, op, inputs, outputs="y", **attributes):
        self.nodes.append(helper.make_node(op, inputs.split(","), outputs.split(","), **attributes))
        return outputs.split(",")[0]

    def floats(self, *shape, scale=1.0):
        return (self.random.standard_normal(shape) * scale).astype(np.float32)

    def bytes(self, kind, *shape):
        limits = np.iinfo(kind)
        return self.random.integers(limits.min, limits.max + 1, shape).astype(kind)

    def scales(self, *shape):
        return self.random.uniform(0.002, 0.02, shape).astype(np.float32)

    def array(self, kind, shape):
        return self.floats(*shape) if kind == np.float32 else self.bytes(kind, *shape)

    def quantise(self, x, name, scale, zero):
        self.constants |= {name + "s": np.float32(scale), name + "z": zero}
        return self.add("QuantizeLinear", f"{x},{name}s,{name}z", name)

    def dequantise(self, x, name, scale=None, zero=None, axis=None):
        if scale is not None:
            self.constants |= {x + "s": scale, x + "z": zero}
        return self.add("DequantizeLinear", f"{x},{x}s,{x}z", name,
                        **({} if axis is None else {"axis": axis}))

    def proto(self):
        infos = [helper.make_tensor_value_info(n, KINDS[np.dtype(k)], dims)
                 for n, (k, dims) in self.inputs.items()]
        graph = helper.make_graph(self.nodes, "g", infos, [onnx.ValueInfoProto(name="y")],
                                  [numpy_helper.from_array(np.asarray(a), n)
                                   for n, a in self.constants.items()])
        return helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])


def qlinear_conv(kind, weights, zero, weight_zero, channels, filters, groups=1, bias=True, **window):
    m = Model(1)
    kernel = window.get("kernel_shape", [3, 3])
    w = m.bytes(weights, filters, channels // groups, *kernel)
    m.inputs["x"] = (kind, ["b", channels, "h", "w"])
    m.constants |= {"xs": np.float32(0.02), "xz": kind(zero), "w": w, "ws": m.scales(filters),
                    "wz": np.full(filters, weight_zero, weights),
                    "ys": np.float32(0.0004 * np.sqrt(w[0].size) * 40), "yz": kind(zero)}
    if bias:
        m.constants["b"] = m.random.integers(-9000, 9000, filters).astype(np.int32)
    m.add("QLinearConv", "x,xs,xz,w,ws,wz,ys,yz" + (",b" if bias else ""), group=groups, **window)
    return m


def conv_integer(zero, weight_zero, channels, filters, **window):
    m = Model(2)
    m.inputs["x"] = (np.uint8, ["b", channels, "h", "w"])
    m.constants |= {"w": m.bytes(np.uint8, filters, channels, *window["kernel_shape"]),
                    "xz": np.uint8(zero), "wz": np.uint8(weight_zero)}
    m.add("ConvInteger", "x,w,xz,wz", **window)
    return m


def qdq_convolutions(kind, zeros, relu):
    """Two convolutions between QuantizeLinear and DequantizeLinear, the first of an image of three
    channels, the second of eight."""
    m = Model(3)
    m.inputs["x"] = (np.float32, ["b", 3, "h", "w"])
    at = m.dequantise(m.quantise("x", "q", 0.02, kind(zeros[0])), "a")
    for i, (inputs, filters, zero) in enumerate([(3, 8, zeros[1]), (8, 20, zeros[2])]):
        w = f"w{i}"
        m.constants |= {w: m.bytes(np.int8, filters, inputs, 3, 3), f"b{i}": m.floats(filters)}
        weights = m.dequantise(w, f"d{i}", m.scales(filters) * 0.15, np.zeros(filters, np.int8), 0)
        at = m.add("Conv", f"{at},{weights},b{i}", f"c{i}", pads=[1, 1, 1, 1],
                   strides=[i + 1, i + 1])
        if relu:
            at = m.add("Relu", at, f"r{i}")
        last = i == 1
        at = m.quantise(at, "y" if last else f"q{i}", 0.03, kind(zero))
        if not last:
            at = m.dequantise(at, f"a{i}")
    return m


def qdq_depthwise(kind, channels, zeros, whole_bias=False, **window):
    """A depthwise convolution between QuantizeLinear and DequantizeLinear; with `whole_bias`, a bias
    of integers with the scale of the sums, as ONNX Runtime's quantiser writes it."""
    m = Model(7)
    m.inputs["x"] = (np.float32, ["b", channels, "h", "w"])
    x = m.dequantise(m.quantise("x", "q", 0.02, kind(zeros[0])), "a")
    m.constants |= {"w": m.bytes(np.int8, channels, 1, *window["kernel_shape"]),
                    "b": m.floats(channels)}
    scales = m.scales(channels)
    w = m.dequantise("w", "d", scales, np.zeros(channels, np.int8), 0)
    bias = "b"
    if whole_bias:
        m.constants["b"] = m.random.integers(-9000, 9000, channels).astype(np.int32)
        bias = m.dequantise("b", "e", scales * np.float32(0.02), np.zeros(channels, np.int32), 0)
    m.quantise(m.add("Conv", f"{x},{w},{bias}", "c", group=channels, **window), "y", 0.1,
               kind(zeros[1]))
    return m


def qdq_residual():
    """The sum of a convolution's result and what it was made of."""
    m = Model(8)
    m.inputs["x"] = (np.float32, ["b", 16, "h", "w"])
    q = m.quantise("x", "q", 0.0213, np.uint8(120))
    x = m.dequantise(q, "a")
    m.constants |= {"w": m.bytes(np.int8, 16, 16, 1, 1), "b": m.floats(16)}
    w = m.dequantise("w", "d", m.scales(16) * 0.3, np.zeros(16, np.int8), 0)
    c = m.dequantise(m.quantise(m.add("Conv", f"{x},{w},b", "c"), "cq", 0.0497, np.uint8(131)), "e")
    m.quantise(m.add("Relu", m.add("Add", f"{x},{c}", "s"), "r"), "y", 0.0391, np.uint8(0))
    return m


def qdq_moves(kind, zero):
    """What gives elements of dequantised tensors in other places: all of one scale."""
    m = Model(9)
    m.inputs["x"] = (np.float32, ["b", 6, "h", "w"])

    def again(value, name):
        m.constants |= {name + "s": np.float32(0.02), name + "z": kind(zero)}
        return m.dequantise(m.quantise(value, name, 0.02, kind(zero)), name + "d")
    x = again("x", "q")
    p = again(m.add("MaxPool", x, "p", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), "pq")
    c = again(m.add("Concat", f"{x},{p}", "c", axis=1), "cq")
    m.constants |= {"first": np.array([1]), "last": np.array([11]), "axes": np.array([1])}
    t = again(m.add("Slice", f"{c},first,last,axes", "t"), "tq")
    u = again(m.add("Transpose", t, "u", perm=[0, 2, 3, 1]), "uq")
    m.quantise(m.add("Flatten", u, "f", axis=2), "y", 0.02, kind(zero))
    return m


def qdq_joined():
    """Branches of other scales side by side, an activation, and the mean of an image."""
    m = Model(10)
    m.inputs["x"] = (np.float32, ["b", 8, "h", "w"])
    x = m.dequantise(m.quantise("x", "q", 0.02, np.uint8(128)), "a")
    parts = []
    for i, scale in enumerate((0.03, 0.05)):
        m.constants |= {f"w{i}": m.bytes(np.int8, 5, 8, 1, 1)}
        w = m.dequantise(f"w{i}", f"d{i}", m.scales(5) * 0.3, np.zeros(5, np.int8), 0)
        c = m.quantise(m.add("Conv", f"{x},{w}", f"c{i}"), f"cq{i}", scale, np.uint8(120 + i))
        parts.append(m.dequantise(c, f"e{i}"))
    j = m.dequantise(m.quantise(m.add("Concat", ",".join(parts), "j", axis=1), "jq", 0.05,
                                np.uint8(125)), "je")
    m.quantise(m.add("HardSwish", j, "h"), "y", 0.03, np.uint8(10))
    return m


def qdq_product(form, kind, zero):
    m = Model(4)
    m.inputs["x"] = (np.float32, ["m", 70] if form == "gemm" else ["b", "m", 70])
    x = m.dequantise(m.quantise("x", "q", 0.02, kind(zero)), "a")
    n = 33
    m.constants["b"] = m.floats(n)
    if form == "gemm":
        m.constants["w"] = m.bytes(np.int8, n, 70)
        w = m.dequantise("w", "d", m.scales(n), np.zeros(n, np.int8), 0)
        y = m.add("Gemm", f"{x},{w},b", "p", transB=1, alpha=0.5)
    elif form == "transposed":
        m.constants["w"] = m.bytes(np.int8, n, 70)
        w = m.dequantise("w", "d", m.scales(n), np.zeros(n, np.int8), 0)
        y = m.add("Add", m.add("MatMul", f"{x}," + m.add("Transpose", w, "t", perm=[1, 0]), "p")
                  + ",b", "s")
    elif form == "fake":  # weights that the model itself quantises, as PyTorch exports them
        m.constants |= {"v": m.floats(70, n), "vs": m.scales(n), "vz": np.zeros(n, np.int8)}
        v = m.add("QuantizeLinear", "v,vs,vz", "w", axis=1)
        w = m.add("DequantizeLinear", f"{v},vs,vz", "d", axis=1)
        y = m.add("Add", m.add("MatMul", f"{x},{w}", "p") + ",b", "s")
    else:  # weights of u8 about 128, with one scale
        m.constants["w"] = m.bytes(np.uint8, 70, n)
        w = m.dequantise("w", "d", np.float32(0.01), np.uint8(128))
        y = m.add("Add", m.add("MatMul", f"{x},{w}", "p") + ",b", "s")
    m.quantise(y, "y", 0.1, kind(zero))
    return m


def dynamic_product(operator, weights, bias=True):
    """What ONNX Runtime's quantize_dynamic writes, and the operators that it makes of that."""
    m = Model(5)
    m.inputs["x"] = (np.float32, ["b", "m", 50])
    m.constants |= {"w": m.bytes(weights, 50, 36), "ws": m.scales(36),
                    "wz": np.zeros(36, weights) if weights == np.int8 else
                    np.full(36, 131, weights), "b": m.floats(36)}
    if operator == "DynamicQuantizeMatMul":
        m.add(operator, "x,w,ws,wz" + (",b" if bias else ""), domain="com.microsoft")
        return m
    m.add("DynamicQuantizeLinear", "x", "q,qs,qz")
    if operator == "MatMulIntegerToFloat":
        m.add(operator, "q,w,qs,ws,qz,wz,b", domain="com.microsoft")
        return m
    m.add("MatMulInteger", "q,w,qz,wz", "i")
    m.add("Mul", m.add("Cast", "i", "f", to=TensorProto.FLOAT) + ","
          + m.add("Mul", "qs,ws", "s"), "r")
    m.add("Add", "r,b")
    return m


def dynamic_convolution():
    m = Model(6)
    m.inputs["x"] = (np.float32, ["b", 6, "h", "w"])
    m.constants |= {"w": m.bytes(np.uint8, 10, 6, 3, 3), "ws": np.float32(0.01),
                    "wz": np.uint8(128)}
    m.add("DynamicQuantizeLinear", "x", "q,qs,qz")
    m.add("ConvInteger", "q,w,qz,wz", "i", pads=[1, 0, 1, 2])
    m.add("Mul", m.add("Cast", "i", "f", to=TensorProto.FLOAT) + ","
          + m.add("Mul", "qs,ws", "s"))
    return m


IMAGES = [{"b": 2, "h": 9, "w": 13}, {"b": 1, "h": 17, "w": 16}, {"b": 1, "h": 3, "w": 1}]
MATRICES = [{"b": 1, "m": 1}, {"b": 3, "m": 61}, {"b": 2, "m": 16}]
PAD = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}

MODELS = {
    "qlinear_conv": (qlinear_conv(np.uint8, np.int8, 117, 0, 8, 24, **PAD), IMAGES),
    "qlinear_conv_photograph": (
        qlinear_conv(np.uint8, np.uint8, 3, 128, 3, 20, kernel_shape=[3, 3], pads=[2, 0, 1, 3],
                     strides=[2, 2]), IMAGES),
    "qlinear_conv_signed_groups": (
        qlinear_conv(np.int8, np.int8, -7, 0, 16, 24, groups=2, dilations=[1, 2],
                     kernel_shape=[3, 3], pads=[1, 2, 1, 2]), IMAGES),
    "qlinear_conv_depthwise": (
        qlinear_conv(np.uint8, np.uint8, 121, 90, 12, 12, groups=12, **PAD), IMAGES),
    "qlinear_conv_off_centre": (
        qlinear_conv(np.uint8, np.uint8, 121, 90, 8, 12, bias=False, **PAD), IMAGES),
    "qlinear_conv_pixels": (
        qlinear_conv(np.uint8, np.int8, 0, 0, 24, 40, kernel_shape=[1, 1]), IMAGES),
    "conv_integer": (conv_integer(130, 128, 5, 9, **PAD), IMAGES),
    "conv_integer_off_centre": (
        conv_integer(7, 100, 4, 9, kernel_shape=[2, 3], strides=[1, 2]), IMAGES[:2]),
    "qdq_convolutions": (qdq_convolutions(np.uint8, (110, 0, 128), True), IMAGES),
    "qdq_convolutions_signed": (qdq_convolutions(np.int8, (-20, 4, 0), False), IMAGES),
    "qlinear_conv_depthwise_bytes": (
        qlinear_conv(np.uint8, np.int8, 121, 0, 40, 40, groups=40, strides=[2, 1], **PAD), IMAGES),
    "qlinear_conv_depthwise_signed": (
        qlinear_conv(np.int8, np.int8, -7, 0, 3, 3, groups=3, dilations=[2, 1],
                     kernel_shape=[3, 5], pads=[3, 2, 2, 4]), IMAGES),
    "qlinear_conv_pairs": (
        qlinear_conv(np.uint8, np.int8, 131, 0, 12, 18, groups=6, **PAD), IMAGES),
    "qlinear_conv_multiplied": (
        qlinear_conv(np.uint8, np.int8, 0, 0, 5, 15, groups=5, strides=[1, 2], **PAD), IMAGES),
    "qdq_depthwise": (
        qdq_depthwise(np.uint8, 24, (0, 115), **PAD), IMAGES),
    "qdq_depthwise_padded": (
        qdq_depthwise(np.uint8, 58, (117, 0), strides=[2, 2], kernel_shape=[5, 5],
                      pads=[2, 2, 2, 2]), IMAGES),
    "qdq_depthwise_signed": (
        qdq_depthwise(np.int8, 33, (-20, 11), **PAD), IMAGES),
    "qdq_depthwise_bias": (
        qdq_depthwise(np.uint8, 12, (9, 100), True, dilations=[1, 2], kernel_shape=[3, 3],
                      pads=[1, 2, 1, 2]), IMAGES),
    "qdq_residual": (qdq_residual(), IMAGES),
    "qdq_moves": (qdq_moves(np.uint8, 117), IMAGES),
    "qdq_moves_signed": (qdq_moves(np.int8, -5), IMAGES),
    "qdq_joined": (qdq_joined(), IMAGES),
    "qdq_matmul": (qdq_product("matmul", np.uint8, 128), MATRICES),
    "qdq_matmul_signed": (qdq_product("matmul", np.int8, 5), MATRICES),
    "qdq_matmul_transposed": (qdq_product("transposed", np.uint8, 100), MATRICES),
    "qdq_matmul_fake": (qdq_product("fake", np.uint8, 120), MATRICES),
    "qdq_gemm": (qdq_product("gemm", np.uint8, 131), [{"m": 1}, {"m": 190}, {"m": 32}]),
    "dynamic_export": (dynamic_product("MatMulInteger", np.int8), MATRICES),
    "dynamic_export_off_centre": (dynamic_product("MatMulInteger", np.uint8), MATRICES),
    "dynamic_quantize_matmul": (dynamic_product("DynamicQuantizeMatMul", np.int8), MATRICES),
    "dynamic_quantize_matmul_plain": (
        dynamic_product("DynamicQuantizeMatMul", np.uint8, bias=False), MATRICES),
    "matmul_integer_to_float": (dynamic_product("MatMulIntegerToFloat", np.int8), MATRICES),
    "dynamic_convolution": (dynamic_convolution(), IMAGES),
}


def main():
    DATA.mkdir(parents=True, exist_ok=True)
    for name, (model, cases) in MODELS.items():
        path = DATA / f"{name}.onnx"
        proto = model.proto()
        onnx.save(proto, path)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        own = any(n.domain for n in proto.graph.node)
        evaluator = None if own else ReferenceEvaluator(proto)
        arrays, differ, most = {}, 0, 0.0
        for i, sizes in enumerate(cases):
            inputs = {n: model.array(kind, [sizes.get(d, d) for d in dims])
                      for n, (kind, dims) in model.inputs.items()}
            (runtime,) = session.run(None, inputs)
            y = runtime if own else np.asarray(evaluator.run(None, inputs)[0])
            assert y.dtype == runtime.dtype and y.shape == runtime.shape, name
            apart = np.abs(y.astype(np.float64) - runtime.astype(np.float64))
            differ, most = differ + np.count_nonzero(apart), max(most, apart.max())
            arrays |= {f"{i}.{n}": a for n, a in inputs.items()}
            arrays |= {f"{i}.y": y, f"{i}.y.runtime": runtime}
        np.savez(DATA / f"{name}.npz", **arrays)
        spread = y.std() if y.dtype.kind == "f" else len(np.unique(y))
        print(f"{name}: {differ} differ, by {most:g} at most; {spread:g}")


if __name__ == "__main__":
    main()
