"""The decoder's step as ONNX Runtime's own tools write it for generation: GroupQueryAttention.

That operator of ONNX Runtime keeps keys and values in buffers for the whole context and writes the
new rows into them, where the exported step concatenates. Inputs: input_ids (1, n) i64, position_ids
(1, n) i64, seqlens_k (1) i32, which is past + n - 1, total_sequence_length () i32, and
past_key_values.I.key and .value (1, heads, context, d); present.I.* are bound to the same buffers.
"""

import onnx
from onnx import TensorProto, helper, numpy_helper

from experiments.decode.weights import weights


def export(config, path):
    """Writes the model with its weights inside."""
    nodes, constants, count = [], [], 0
    width, d = config.width, config.width // config.heads

    def node(op, inputs, outputs=1, domain="", **attributes):
        nonlocal count
        names = [f"t{count + i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
        count += len(names)
        nodes.append(helper.make_node(op, inputs, names, domain=domain, **attributes))
        return names[0] if len(names) == 1 else names

    for name, value in weights(config).items():
        constants.append(numpy_helper.from_array(value, name))
    constants.append(numpy_helper.from_array(weights(config)["wte.weight"].T.copy(), "head"))

    def norm(x, name):
        return node("LayerNormalization", [x, f"{name}.weight", f"{name}.bias"], epsilon=1e-5)

    def linear(x, name):
        return node("Add", [node("MatMul", [x, f"{name}.weight"]), f"{name}.bias"])

    x = node("Add", [node("Gather", ["wte.weight", "input_ids"]),
                     node("Gather", ["wpe.weight", "position_ids"])])
    states = []
    for i in range(config.layers):
        qkv = linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
        q, k, v = node("Split", [qkv], 3, axis=2, num_outputs=3)
        past = [f"past_key_values.{i}.{part}" for part in ("key", "value")]
        present = [f"present.{i}.{part}" for part in ("key", "value")]
        states += zip(past, present)
        seen, *_ = node(
            "GroupQueryAttention", [q, k, v, *past, "seqlens_k", "total_sequence_length"],
            [f"seen.{i}", *present], domain="com.microsoft", num_heads=config.heads,
            kv_num_heads=config.heads, scale=1 / d**0.5)
        x = node("Add", [x, linear(seen, f"h.{i}.attn.c_proj")])
        hidden = linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        hidden = node("Gelu", [hidden], approximate="tanh")
        x = node("Add", [x, linear(hidden, f"h.{i}.mlp.c_proj")])
    node("MatMul", [norm(x, "ln_f"), "head"], ["logits"])

    def value(name, dtype, dims):
        return helper.make_tensor_value_info(name, dtype, dims)

    cache = (1, config.heads, "context", d)
    graph = helper.make_graph(
        nodes, "decoder",
        [value("input_ids", TensorProto.INT64, (1, "n")),
         value("position_ids", TensorProto.INT64, (1, "n")),
         value("seqlens_k", TensorProto.INT32, (1,)),
         value("total_sequence_length", TensorProto.INT32, ()),
         *(value(past, TensorProto.FLOAT, cache) for past, _ in states)],
        [value("logits", TensorProto.FLOAT, (1, "n", config.vocabulary)),
         *(value(present, TensorProto.FLOAT, cache) for _, present in states)], constants)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]), path)
