"""What dispatch is tried on: the products of a layer of BERT-base, and a convolution, in text IR
with drawn weights."""

from experiments.lstm import weights

WIDTH, INNER, HEADS, CHANNELS = 768, 3072, 12, 64

# A layer less its norms: four dense products over batch and length, and attention.
BERT = f"""fn @main(%x: Tensor[(b, n, {WIDTH}), f32]) -> Tensor[(b, n, {WIDTH}), f32] {{
  let %product = matmul(%x, const("w_qkv"));
  let %qkv = add(%product, const("b_qkv"));
  let %q = slice(%qkv) {{axes = [2], starts = (0,), ends = ({WIDTH},), steps = [1]}};
  let %k = slice(%qkv) {{axes = [2], starts = ({WIDTH},), ends = ({2 * WIDTH},), steps = [1]}};
  let %v = slice(%qkv) {{axes = [2], starts = ({2 * WIDTH},), ends = ({3 * WIDTH},), steps = [1]}};
  let %mixed = attention(%q, %k, %v) {{heads = {HEADS}, scale = 0.125}};
  let %projected = matmul(%mixed, const("w_out"));
  let %biased = add(%projected, const("b_out"));
  let %middle = add(%biased, %x);
  let %wide = matmul(%middle, const("w_up"));
  let %wider = add(%wide, const("b_up"));
  let %active = gelu(%wider);
  let %narrow = matmul(%active, const("w_down"));
  let %narrower = add(%narrow, const("b_down"));
  let %y = add(%narrower, %middle);
  %y
}}
"""

# With channels last, as inside a network: the transposes at its borders are no part of a convolution.
CONVOLUTION = f"""fn @main(%x: Tensor[(1, h, w, {CHANNELS}), f32]) -> Tensor[(1, h, w, {CHANNELS}), f32] {{
  let %sums = conv2d(%x, const("kernel"))
    {{strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 1, layout = "nhwc"}};
  let %y = relu(%sums);
  %y
}}
"""


def drawn(shapes, first):
    """Returns {name: weights} scaled by the root of the extent that is summed over."""
    out = {}
    for number, (name, shape) in enumerate(shapes.items()):
        summed = shape[0] if len(shape) == 2 else max(1, shape[0] // 8)
        if len(shape) == 4:
            summed = shape[0] * shape[1] * shape[2]  # HWIO
        out[name] = weights.uniform(first + number, shape) / summed ** 0.5
    return {name: value.astype("float32") for name, value in out.items()}


def write_bert(folder):
    """Writes the layer and its weights; returns the file."""
    tensors = drawn({"w_qkv": (WIDTH, 3 * WIDTH), "b_qkv": (3 * WIDTH,), "w_out": (WIDTH, WIDTH),
                     "b_out": (WIDTH,), "w_up": (WIDTH, INNER), "b_up": (INNER,),
                     "w_down": (INNER, WIDTH), "b_down": (WIDTH,)}, 100)
    return write(folder / "bert-products.nir", BERT, tensors)


def write_convolution(folder):
    tensors = drawn({"kernel": (3, 3, CHANNELS, CHANNELS)}, 120)
    return write(folder / "convolution.nir", CONVOLUTION, tensors)


def write(path, text, tensors):
    path.write_text(text, encoding="utf-8")
    weights.write_safetensors(f"{path}.safetensors", tensors)
    return path
