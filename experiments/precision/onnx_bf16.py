"""A copy of an ONNX model whose products and convolutions with constants are in bf16.

What ONNX Runtime is offered to compute in bf16: it has no option for it.
"""


OPERATORS = ("MatMul", "Conv")
CONVOLUTIONS_FROM = 22  # ONNX's version that has them in bf16


def convert(source, target):
    """Writes the model of `source` to `target`: the constants of each MatMul and Conv by ones in
    bf16, the other operand rounded to bf16, the result cast to f32. All other nodes stay as they
    are."""
    import ml_dtypes
    import onnx
    from onnx import TensorProto, helper, numpy_helper, version_converter
    model = onnx.load(str(source))
    opset = next(one.version for one in model.opset_import if one.domain == "")
    if opset < CONVOLUTIONS_FROM and any(node.op_type == "Conv" for node in model.graph.node):
        model = version_converter.convert_version(model, CONVOLUTIONS_FROM)
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer
                 if tensor.data_type == TensorProto.FLOAT}
    nodes, rounded, used = [], {}, set()
    for node in graph.node:
        names = list(node.input[1:])
        if node.op_type not in OPERATORS or not all(name in constants for name in names):
            nodes.append(node)
            continue
        operand, result = node.input[0], node.output[0]
        if operand not in rounded:
            rounded[operand] = f"{operand}_rounded"
            nodes.append(helper.make_node("Cast", [operand], [rounded[operand]],
                                          to=TensorProto.BFLOAT16))
        for name in set(names) - used:
            array = numpy_helper.to_array(constants[name]).astype(ml_dtypes.bfloat16)
            graph.initializer.append(numpy_helper.from_array(array, f"{name}_bf16"))
        used.update(names)
        narrow = helper.make_node(node.op_type, [rounded[operand],
                                                 *(f"{name}_bf16" for name in names)],
                                  [f"{result}_bf16"], name=node.name)
        narrow.attribute.extend(node.attribute)
        nodes += [narrow, helper.make_node("Cast", [f"{result}_bf16"], [result],
                                           to=TensorProto.FLOAT)]
    if not used:
        raise RuntimeError(f"{source}: no product with a constant to convert")
    replace_nodes(graph, nodes)
    onnx.save(model, str(target))


def replace_nodes(graph, nodes):
    """Gives an ONNX graph these nodes, and drops the constants that none of them reads."""
    left = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in left]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)
