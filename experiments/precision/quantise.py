"""Models in narrow types for the peers, made of an ONNX file, by their own quantisers where they
have one.

`make` runs one in a process of its own, since they leave memory and threads behind, and keeps what
it made until the model, the samples or a version changes.
"""

import hashlib
import importlib.metadata
import pathlib
import subprocess
import sys

import numpy as np

from experiments.precision import onnx_bf16

PACKAGES = ("onnx", "onnxruntime", "openvino", "nncf")
PRODUCTS = ("MatMul", "Gemm", "Attention")  # what a dynamic quantiser may take
STEPS = 127  # of a symmetric 8-bit integer, on either side of 0
REASON = 400  # bytes of a quantiser's last words


def without_vnni():
    """Whether the CPU sums products of 8 bits in 16, which overflows: ONNX Runtime recommends
    weights of 7 bits there."""
    from experiments.harness import machine
    return not {"avx512_vnni", "avx_vnni"} & machine.flags()


def dynamic(source, target, per_channel):
    """ONNX Runtime's dynamic quantisation: weights ahead, activations by the range of each tensor
    as it comes. Embeddings stay f32, which costs no time and gains accuracy."""
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic
    # The type of what its shape inference does not know: results of its own fused operators.
    quantize_dynamic(source, target, op_types_to_quantize=list(PRODUCTS), per_channel=per_channel,
                     reduce_range=without_vnni(), weight_type=QuantType.QInt8,
                     extra_options={"MatMulConstBOnly": True,
                                    "DefaultTensorType": TensorProto.FLOAT})


class Samples:
    """What ONNX Runtime calls a calibration data reader, of a list of inputs."""

    def __init__(self, samples):
        self.left = iter(samples)

    def get_next(self):
        return next(self.left, None)


def static(source, target, samples):
    """ONNX Runtime's static quantisation: a model with QuantizeLinear and DequantizeLinear around
    products with constants and convolutions, weights by channel, activations by their range over
    the samples."""
    from onnxruntime.quantization import (CalibrationMethod, QuantFormat, QuantType,
                                          quant_pre_process, quantize_static)
    prepared = f"{target}.prepared.onnx"
    # Batch normalisation goes into the convolutions; no guess at symbolic shapes.
    quant_pre_process(source, prepared, skip_symbolic_shape=True)
    quantize_static(
        prepared, target, Samples(samples), quant_format=QuantFormat.QDQ, per_channel=True,
        reduce_range=without_vnni(), activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8, calibrate_method=CalibrationMethod.MinMax,
        extra_options={"MatMulConstBOnly": True})
    pathlib.Path(prepared).unlink()


def quantise_columns(weights):
    """weights: (k, n) f32. Returns (i8 of that shape, the scale of each column)."""
    largest = np.max(np.abs(weights), axis=0)
    scales = np.where(largest > 0, largest / STEPS, 1).astype(np.float32)
    return np.rint(weights / scales).astype(np.int8), scales


def weights_alone(source, target):
    """Writes the constants of products as 8-bit integers with a scale for each column, which is
    what OpenVINO quantises activations for as they come."""
    import onnx
    from onnx import helper, numpy_helper
    model = onnx.load(str(source))
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes, done = [], set()
    for node in graph.node:
        name = node.input[1] if node.op_type == "MatMul" else None
        tensor = constants.get(name)
        if tensor is not None and tensor.data_type == onnx.TensorProto.FLOAT \
                and len(tensor.dims) == 2:
            if name not in done:
                done.add(name)
                integers, scales = quantise_columns(numpy_helper.to_array(tensor))
                graph.initializer.extend([numpy_helper.from_array(integers, f"{name}_i8"),
                                          numpy_helper.from_array(scales, f"{name}_scales")])
                nodes.append(helper.make_node(
                    "DequantizeLinear", [f"{name}_i8", f"{name}_scales"], [f"{name}_f32"], axis=1))
            node.input[1] = f"{name}_f32"
        nodes.append(node)
    if not done:
        raise RuntimeError(f"{source}: no product with a constant to quantise")
    onnx_bf16.replace_nodes(graph, nodes)
    onnx.save(model, str(target))


def nncf(source, target, samples):
    """OpenVINO's own quantiser, as it recommends for transformers, calibrated on the samples."""
    import nncf as quantiser
    import openvino
    model = openvino.Core().read_model(source)
    found = quantiser.quantize(model, quantiser.Dataset(samples), subset_size=len(samples),
                               model_type=quantiser.ModelType.TRANSFORMER)
    openvino.save_model(found, target, compress_to_fp16=False)


# Kind → (function, the file's ending, whether it takes samples).
KINDS = {
    "bf16": (onnx_bf16.convert, ".onnx", False),
    "dynamic-channel": (lambda source, target: dynamic(source, target, True), ".onnx", False),
    "dynamic-tensor": (lambda source, target: dynamic(source, target, False), ".onnx", False),
    "static": (static, ".onnx", True),
    "weights": (weights_alone, ".onnx", False),
    "nncf": (nncf, ".xml", True),
}


def write_samples(path, samples):
    np.savez(path, **{f"{number}/{name}": array for number, sample in enumerate(samples)
                      for name, array in sample.items()})


def read_samples(path):
    found = {}
    with np.load(path) as arrays:
        for key in arrays.files:
            number, name = key.split("/", 1)
            found.setdefault(int(number), {})[name] = arrays[key]
    return [found[number] for number in sorted(found)]


def digest(kind, source, samples):
    found = hashlib.sha256(kind.encode())
    for path in (pathlib.Path(source), pathlib.Path(__file__), pathlib.Path(onnx_bf16.__file__)):
        with open(path, "rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    for sample in samples:
        for name, array in sample.items():
            found.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    for package in PACKAGES:
        try:
            found.update(f"{package} {importlib.metadata.version(package)}".encode())
        except importlib.metadata.PackageNotFoundError:
            pass  # of another environment
    return found.hexdigest()


def make(kind, source, samples=()):
    """Returns the file of that kind beside the source, made unless it is there; samples: inputs by
    name, for the kinds that are calibrated. RuntimeError with the quantiser's last words."""
    _, ending, _ = KINDS[kind]
    source = pathlib.Path(source)
    target = source.with_name(f"{source.stem}-{kind}{ending}")
    stamp, wanted = target.with_suffix(".sha256"), digest(kind, source, samples)
    if target.exists() and stamp.exists() and stamp.read_text() == wanted:
        return target
    stamp.unlink(missing_ok=True)
    inputs = target.with_suffix(".npz")
    if samples:
        write_samples(inputs, samples)
    done = subprocess.run([sys.executable, "-m", "experiments.precision.quantise", kind,
                           str(source), str(target), *([str(inputs)] if samples else [])],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    words = done.stdout.decode(errors="replace")
    sys.stderr.write(words)
    inputs.unlink(missing_ok=True)
    if done.returncode != 0:
        raise RuntimeError(f"quantising ({kind}) ended with {done.returncode}: "
                           f"{' '.join(words.split())[-REASON:]}")
    stamp.write_text(wanted)
    return target


def main():
    kind, source, target, *samples = sys.argv[1:]
    KINDS[kind][0](source, target, *(read_samples(path) for path in samples))


if __name__ == "__main__":
    main()
