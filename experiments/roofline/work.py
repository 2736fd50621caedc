"""What a run computes and reads, told by its kernels: `nimble inspect --kernels` has each kernel's
operators with the types of their operands, a profile its calls with their extents."""

import ast
import dataclasses
import math
import re

from experiments.harness.errors import ExperimentError

CLASSES = ("products", "attention", "normalisation", "element-wise")
# Kernel template → class; of the others the last one. A product of two activations is attention's.
# Reductions are normalisations here, with the few sums of a pooling layer among them. A test knows
# the compiler's templates: a new one has to be named here, in one place or the other.
TEMPLATES = {"dense": "products", "dense_tiles": "products", "blockwise": "products",
             "conv2d": "products", "conv2d_nhwc": "products", "conv2d_tiles": "products",
             "depthwise_nhwc": "products", "depthwise_bytes": "products", "winograd": "products",
             "recurrent": "products", "recurrent_steps": "products",
             "attention": "attention", "attention_tiles": "attention", "batch_matmul": "attention",
             "reduce": "normalisation"}
OTHERS = ("pool2d", "pool2d_nhwc", "scan", "elementwise")
COUNTED = CLASSES[:2]  # whose operations make up the arithmetic limit
TILED = "packed_winograd"  # a convolution of 3 × 3 taps by tiles of its result
CONVOLUTIONS = ("conv2d", "packed_conv2d", TILED)
PACKED_PRODUCTS = ("packed_matmul", "blockwise_matmul", "packed_groupwise_matmul")
PARTS = ("gather", "slice")  # operators that read a part of their first operand

PARAMETER = re.compile(r"%(p\d+): Tensor\[\((.*?)\), (\w+)\]")
TENSOR = re.compile(r"Tensor\[\((.*?)\), (\w+)\]")
BINDING = re.compile(r"let %(\w+): Tensor\[\((.*?)\), (\w+)\] = (\w+)\((.*)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Tensor:
    dims: tuple  # texts in the kernel's symbols
    dtype: str

    def is_fixed(self):
        return bool(self.dims) and all(dim.isdigit() for dim in self.dims)

    def elements(self, symbols):
        return math.prod(extent(dim, symbols) for dim in self.dims)

    def bytes(self, symbols):
        return self.elements(symbols) * width(self.dtype)


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operator inside a kernel: its operands by name, as far as they are tensors, and the tensor
    that it makes."""

    name: str
    operands: tuple
    result_name: str
    result: Tensor
    attributes: str  # as text


@dataclasses.dataclass(frozen=True)
class Kernel:
    label: str  # its operators, and of a product with constants the extents of the matrix
    kind: str  # of CLASSES
    parameters: dict  # name → Tensor
    operations: tuple
    results: tuple = ()  # Tensors

    def flops(self, symbols):
        """Returns the operations of its products and attention; a multiply-add is two. Others
        count for nothing, so this is less than all of them."""
        tensors = {**self.parameters, **{o.result_name: o.result for o in self.operations}}
        return sum(flops_of(operation, tensors, symbols) for operation in self.operations)

    def bytes(self, symbols):
        """Returns the bytes of all that a call reads and writes, each once; of an operand that only
        parts are taken from, these."""
        total = sum(tensor.bytes(symbols) for tensor in self.results)
        for name, tensor in self.parameters.items():
            users = [o for o in self.operations if name in o.operands]
            whole = tensor.bytes(symbols)
            if users and all(o.name in PARTS and o.operands[0] == name for o in users):
                whole = min(whole, sum(o.result.bytes(symbols) for o in users))
            total += whole
        return total

    def constant_bytes(self, symbols):
        """Returns the bytes of constants that a call reads: operands of fixed extents; of a table
        that rows are taken from, these."""
        taken = {o.operands[0]: o for o in self.operations if o.name in PARTS and o.operands}
        total = 0
        for name, tensor in self.parameters.items():
            if tensor.is_fixed():
                part = taken.get(name)
                total += (part.result if part else tensor).bytes(symbols)
        return total


def width(dtype):
    """Returns the bytes of an element of a dtype like f32, bf16 or bool."""
    bits = re.search(r"\d+$", dtype)
    return int(bits[0]) // 8 if bits else 1


def dims_of(text):
    """Returns the extents of a type's text; a comma inside of a function's brackets parts none."""
    dims, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            dims.append(text[start:at].strip())
            start = at + 1
    dims.append(text[start:].strip())
    return tuple(dim for dim in dims if dim)


FUNCTIONS = {"floordiv": lambda a, b: a // b, "ceildiv": lambda a, b: -(-a // b),
             "mod": lambda a, b: a % b, "min": min, "max": max,
             "broadcast": lambda a, b: b if a == 1 else a}
OPERATORS = {ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b}


def extent(text, symbols):
    """Returns the value of an extent's text, like "2*s0 + 1", at these symbols."""
    def value(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and node.id in symbols:
            return symbols[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in FUNCTIONS:
            return FUNCTIONS[node.func.id](*map(value, node.args))
        raise ExperimentError(f"an extent that cannot be told: {text}, with {symbols}")
    try:
        return value(ast.parse(text, mode="eval").body)
    except SyntaxError:
        raise ExperimentError(f"an extent that cannot be told: {text}") from None


def attribute(operation, name, otherwise):
    found = re.search(rf'(?<!\w){name} = "?(\w+)', operation.attributes)
    return found[1] if found else otherwise


def numbers_of(operation, name):
    """Returns the integers of an attribute like kernel = [3, 3]."""
    found = re.search(rf"(?<!\w){name} = \[([\d, ]*)\]", operation.attributes)
    return [int(number) for number in re.findall(r"\d+", found[1])] if found else []


def channel_axis(operation):
    """Returns the axis of a convolution's images that has the channels."""
    if operation.name == TILED:
        return -1
    if operation.name == "packed_conv2d":  # its result always has them last
        return 1 if attribute(operation, "image_layout", "nhwc") == "nchw" else -1
    return -1 if attribute(operation, "layout", "nchw") == "nhwc" else 1


def taps_of(operation, tensors, symbols):
    """Returns how many products a convolution sums up for each element of its result; by tiles, how
    many are made for each, were all tiles whole."""
    if operation.name == TILED:
        _, products, channels, _ = tensors[operation.operands[1]].dims
        return int(products) * int(channels) / int(attribute(operation, "tile", None)) ** 2
    if operation.name == "packed_conv2d":
        channels = tensors[operation.operands[0]].dims[channel_axis(operation)]
        inputs = extent(channels, symbols) // int(attribute(operation, "groups", 1))
        return inputs * math.prod(numbers_of(operation, "kernel"))
    weights = tensors[operation.operands[1]].dims
    of_a_filter = weights[:-1] if channel_axis(operation) == -1 else weights[1:]
    return math.prod(extent(dim, symbols) for dim in of_a_filter)


def flops_of(operation, tensors, symbols):
    def of(operand):
        return tensors[operation.operands[operand]]
    results = operation.result
    if operation.name in PACKED_PRODUCTS:
        return 2 * int(attribute(operation, "k", None)) * results.elements(symbols)
    if operation.name == "matmul":
        dims = of(0).dims
        summed = dims[-2 if len(dims) > 1 and attribute(operation, "transpose_a", "") == "true"
                      else -1]
        return 2 * extent(summed, symbols) * results.elements(symbols)
    if operation.name in CONVOLUTIONS:
        return 2 * taps_of(operation, tensors, symbols) * results.elements(symbols)
    if operation.name == "attention":  # scores, then weighted values: keys × results each
        return 4 * extent(of(1).dims[1], symbols) * results.elements(symbols)
    return 0


def parse_operations(text):
    found = []
    for name, dims, dtype, operator, rest in BINDING.findall(text):
        operands, _, attributes = rest.partition(") {")
        found.append(Operation(operator, tuple(re.findall(r"%(\w+)", operands)), name,
                               Tensor(dims_of(dims), dtype), attributes))
    return tuple(found)


def label_of(source, operations, parameters):
    for operation in operations:
        if operation.name in CONVOLUTIONS:
            return f"{source} {convolution_text(operation, parameters)}"
        if operation.name in PACKED_PRODUCTS:
            return f"{source} k={attribute(operation, 'k', '?')} n={attribute(operation, 'n', '?')}"
    return source


def convolution_text(operation, parameters):
    """Returns like "3x3 /2 64 → 128" what is fixed of a convolution: kernel, stride, channels."""
    image, axis = parameters.get(operation.operands[0]), channel_axis(operation)
    kernel = (3, 3) if operation.name == TILED else numbers_of(operation, "kernel")
    if not kernel:
        weights = parameters.get(operation.operands[1])
        kernel = weights.dims[:2] if weights and axis == -1 else weights.dims[2:] if weights else ()
    strides = numbers_of(operation, "strides")
    stride = f" /{'x'.join(map(str, strides))}" if set(strides) - {1} else ""
    outputs = operation.result.dims[1 if axis == 1 and operation.name == "conv2d" else -1]
    return (f"{'x'.join(map(str, kernel))}{stride} {image.dims[axis] if image else '?'} → "
            f"{outputs}")


def class_of(templates):
    """Returns the class of a kernel that has implementations of these templates."""
    known = [TEMPLATES[name] for name in templates if name in TEMPLATES]
    return known[0] if known else CLASSES[-1]


def read(inspected):
    """Returns {kernel: Kernel} of what `nimble inspect --kernels --format json` prints."""
    kernels = {}
    for entry in inspected["kernels"]:
        text = entry["workload"]
        head = text.partition("{\n")[0]
        operations = parse_operations(text)
        parameters = {name: Tensor(dims_of(dims), dtype)
                      for name, dims, dtype in PARAMETER.findall(head)}
        kernels[entry["name"]] = Kernel(
            label_of(entry["source"], operations, parameters),
            class_of([i["template"] for i in entry["implementations"]]), parameters, operations,
            tuple(Tensor(dims_of(dims), dtype)
                  for dims, dtype in TENSOR.findall(head.partition("->")[2])))
    return kernels


def account(kernels, profile):
    """Returns what a run took, by a profile of some: `wall_us`, `flops` of products and attention,
    the `bytes` of constants, `us` by class with "other" for what is not kernels, and by label
    `workloads`: class, calls, µs and flops."""
    runs = profile["runs"]
    us = dict.fromkeys((*CLASSES, "other"), 0.0)
    flops, read_bytes, workloads = dict.fromkeys(CLASSES, 0), 0, {}
    for call in profile["kernels"]:
        kernel, calls = kernels[call["name"]], call["count"] / runs
        amount = calls * kernel.flops(call["shape"])
        if kernel.kind in COUNTED and not amount:
            raise ExperimentError(f"{call['name']} ({kernel.label}) is of {kernel.kind}, but none "
                                  "of its operators counts as one; experiments/roofline/work.py "
                                  "has the rules")
        took = call["total_ns"] / runs / 1e3
        us[kernel.kind] += took
        flops[kernel.kind] += amount
        read_bytes += calls * kernel.constant_bytes(call["shape"])
        row = workloads.setdefault(kernel.label, {"kind": kernel.kind, "calls": 0.0, "us": 0.0,
                                                  "flops": 0.0})
        row["calls"] += calls
        row["us"] += took
        row["flops"] += amount
    wall = profile["wall_ns"] / runs / 1e3
    us["other"] = wall - profile["kernel_ns"] / runs / 1e3
    return {"wall_us": wall, "flops": flops, "bytes": read_bytes, "us": us, "workloads": workloads}
