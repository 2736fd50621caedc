"""A copy of an ONNX model whose products with constants are in bf16.

What ONNX Runtime is offered to compute in bf16: it has no option for it.
"""


def convert(source, target):
    """Writes the model of `source` to `target`: the constant of each MatMul by one in bf16, its
    other operand rounded to bf16, its result cast to f32. All other nodes stay as they are."""
    import ml_dtypes
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    model = onnx.load(str(source))
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes, rounded, used = [], {}, set()
    for node in graph.node:
        weight = constants.get(node.input[1]) if node.op_type == "MatMul" else None
        if weight is None or weight.data_type != TensorProto.FLOAT:
            nodes.append(node)
            continue
        operand, name, result = node.input[0], node.input[1], node.output[0]
        if operand not in rounded:
            rounded[operand] = f"{operand}_bf16"
            nodes.append(helper.make_node("Cast", [operand], [rounded[operand]],
                                          to=TensorProto.BFLOAT16))
        if name not in used:
            used.add(name)
            array = numpy_helper.to_array(weight).astype(ml_dtypes.bfloat16)
            graph.initializer.append(numpy_helper.from_array(array, f"{name}_bf16"))
        nodes.append(helper.make_node("MatMul", [rounded[operand], f"{name}_bf16"],
                                      [f"{result}_bf16"], name=node.name))
        nodes.append(helper.make_node("Cast", [f"{result}_bf16"], [result], to=TensorProto.FLOAT))
    if not used:
        raise RuntimeError(f"{source}: no product with a constant to convert")
    left = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in left]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)
    onnx.save(model, str(target))
