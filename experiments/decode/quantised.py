"""The decoder with its matrices in 4 bits, as ONNX Runtime's own tool writes them.

    python -m experiments.decode.quantised small FOLDER [ACCURACY_LEVEL]

Every product with a constant matrix, the head's too, becomes a MatMulNBits: blocks of 32 rows of a
column with a scale each, no zero points. Its accuracy_level says what the other operand may become:
0 leaves it in f32, 4 lets it be rounded to bytes, block by block. Both ways to decode with ONNX
Runtime get such a model: the exported step, which nimble compiles too, and the one of its own
attention operator.
"""

import pathlib
import sys

BITS, BLOCK = 4, 32
# By accuracy_level: the name of the case, and what it is called in tables.
LEVELS = {0: ("int4", "4-bit weights, f32 activations"),
          4: ("int4-bytes", "4-bit weights, activations in bytes")}


def quantise(path, level):
    """Writes the model of a file anew, with quantised matrices."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    quantizer = MatMulNBitsQuantizer(onnx.load(path), bits=BITS, block_size=BLOCK,
                                     is_symmetric=True, accuracy_level=level)
    quantizer.process()
    quantizer.model.save_model_to_file(str(path), False)


def export(config, folder, level):
    """Writes folder/model.onnx, the step by PyTorch's exporter, and folder/onnxruntime.onnx."""
    from experiments.decode import model, shared_cache
    model.export(config, folder / "model.onnx")
    shared_cache.export(config, folder / "onnxruntime.onnx")
    for name in ("model.onnx", "onnxruntime.onnx"):
        quantise(folder / name, level)


if __name__ == "__main__":
    from experiments.decode.weights import CONFIGS
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in CONFIGS:
        sys.exit(f"python -m experiments.decode.quantised {'|'.join(CONFIGS)} FOLDER [LEVEL]")
    export(CONFIGS[sys.argv[1]], pathlib.Path(sys.argv[2]),
           int(sys.argv[3]) if len(sys.argv) == 4 else 0)
