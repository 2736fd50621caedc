"""Candidates of `scripts/gpu-check`: kernels of a GPU in many configurations, each a small program.

A program makes its weights from vectors by the outer product's sine, so that there is nothing to
carry or to copy, and more of them than the second-level cache holds; each product then reads its
own from memory, as those of a whole model do.
"""

import dataclasses
import itertools
import json
import random

import numpy as np

SIZES = (19, 53, 104)  # rows of a product, lengths of a sequence
MANY_ROWS = (256, 1024)  # of a batch of sequences
CACHE_BYTES = 96 << 20  # what a kernel's weights are more than, all together
TOLERANCE = 1e-4  # against the default configuration's result, of the largest number
NARROW_TOLERANCE = 1e-2  # where results are rounded to bf16, or factors may be to tf32


@dataclasses.dataclass(frozen=True)
class Precision:
    """What `nimble compile --precision` makes of products and convolutions of f32: the type of their
    operands, its bytes, and the attribute that says the rest."""
    dtype: str = "f32"
    element: int = 4
    attribute: str = ""
    tolerance: float = NARROW_TOLERANCE

    def operand(self, name, lines):
        """Returns the variable that is `name` in this type; what makes it is added to `lines`."""
        if self.dtype == "f32":
            return f"%{name}"
        lines.append(f"let %{name}t = cast(%{name}) {{dtype = {self.dtype}}};")
        return f"%{name}t"


PRECISIONS = {"f32": Precision(tolerance=TOLERANCE), "tf32": Precision(attribute="tf32 = true"),
              "bf16": Precision("bf16", 2, "out = f32")}


@dataclasses.dataclass(frozen=True)
class Kernel:
    """`text` is the program, `kernel` how the kernel's name in it ends; `inputs` maps a size to
    arrays; a size matters to it or not."""
    name: str
    kernel: str
    text: str
    inputs: object
    sizes: tuple = SIZES
    tolerance: float = TOLERANCE


def signature(inputs, outputs):
    quoted = [", ".join(f'"{name}"' for name in names) for names in (inputs, outputs)]
    empty = ", ".join('""' for _ in inputs)
    return f"signature @main {{inputs = [{quoted[0]}], outputs = [{quoted[1]}], " \
           f"defaults = [{empty}]}};\n"


def program(inputs, lines, outputs):
    """`inputs` maps names to types; `outputs` maps names to variables."""
    parameters = ", ".join(f"%{name}: Tensor[{type_}]" for name, type_ in inputs.items())
    variables = list(outputs.values())
    if len(variables) > 1:
        lines = [*lines, f"let %results = ({', '.join(variables)});"]
        variables = ["%results"]
    body = "".join(f"  {line}\n" for line in lines)
    return f"{signature(inputs, outputs)}fn @main({parameters}) {{\n{body}  {variables[0]}\n}}\n"


def draw(seed, *shape, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def weights_of(count, rows, columns, dtype):
    """Returns the inputs and lines that make %w0, %w1, …."""
    inputs = {"v": f"(1, {columns}), f32"}
    lines = []
    for i in range(count):
        inputs[f"u{i}"] = f"({rows}, 1), f32"
        lines += [f"let %a{i} = mul(%u{i}, %v);", f"let %s{i} = sin(%a{i});",
                  f"let %{'w' if dtype == 'f32' else 't'}{i} = mul(%s{i}, 0.05f32);"]
        if dtype != "f32":
            lines.append(f"let %w{i} = cast(%t{i}) {{dtype = {dtype}}};")
    return inputs, lines


def vectors(count, rows, columns):
    return {"v": draw(1, 1, columns, scale=10),
            **{f"u{i}": draw(2 + i, rows, 1, scale=10) for i in range(count)}}


def product(k, n, follow, precision, sizes=SIZES):
    """A product of BERT-base: `follow` is "", "residual" or an operator ("gelu", "relu", …);
    `precision` one of PRECISIONS."""
    policy = PRECISIONS[precision]
    dtype = policy.dtype
    count = -(-CACHE_BYTES // (k * n * policy.element))
    inputs, lines = weights_of(count, k, n, dtype)
    inputs.update(x=f"(n, {k}), f32", bias=f"({n}), f32")
    x = policy.operand("x", lines)
    if follow == "residual":
        inputs["y"] = f"(n, {n}), f32"
    out = f" {{{policy.attribute}}}" if policy.attribute else ""
    results = []
    for i in range(count):
        lines += [f"let %p{i} = matmul({x}, %w{i}){out};", f"let %b{i} = add(%bias, %p{i});"]
        results.append(f"%b{i}")
        if follow == "residual":
            lines.append(f"let %r{i} = add(%b{i}, %y);")
            results[i] = f"%r{i}"
        elif follow:
            lines.append(f"let %g{i} = {follow}(%b{i});")
            results[i] = f"%g{i}"
            if follow == "gelu" and dtype != "f32":  # what the next product takes
                lines.append(f"let %h{i} = cast(%g{i}) {{dtype = {dtype}}};")
                results[i] = f"%h{i}"
    total = ""
    for i, result in enumerate(results):
        lines.append(f"let %m{i} = sum({result}) {{axes = [1], keepdims = false}};")
        if total:
            lines.append(f"let %z{i} = add(%m{i}, {total});")
        total = f"%z{i}" if total else f"%m{i}"
    lines.append(f"let %total = cast({total}) {{dtype = f32}};")
    outputs = {"total": "%total"}
    if not (follow == "gelu" and dtype != "f32"):  # else numpy has no such type
        outputs["first"] = results[0]

    def arrays(rows):
        given = {**vectors(count, k, n), "x": draw(100, rows, k), "bias": draw(101, n)}
        if follow == "residual":
            given["y"] = draw(102, rows, n)
        return given
    rows = "rows" if sizes is MANY_ROWS else ""
    label = "-".join(part for part in ("product", f"{k}x{n}", follow, precision, rows) if part)
    return Kernel(label, "_matmul", program(inputs, lines, outputs), arrays, sizes,
                  tolerance=policy.tolerance)


def convolution(channels, filters, taps, groups=1, precision="f32", sizes=(14, 28, 56)):
    """A layer of a ResNet or a MobileNet, of square images: `sizes` are their sides."""
    policy = PRECISIONS[precision]
    depth, pad = channels // groups, taps // 2
    inputs, lines = weights_of(1, filters, depth * taps * taps, policy.dtype)
    inputs.update(x=f"(1, {channels}, n, n), f32", bias=f"({filters}), f32")
    x = policy.operand("x", lines)
    more = f", {policy.attribute}" if policy.attribute else ""
    lines += [f"let %f = reshape(%w0) {{shape = ({filters}, {depth}, {taps}, {taps})}};",
              f"let %c = conv2d({x}, %f, %bias) {{strides = [1, 1], pads = [{pad}, {pad}, {pad}, "
              f"{pad}], dilations = [1, 1], groups = {groups}{more}}};",
              "let %y = relu(%c);"]

    def arrays(n):
        return {**vectors(1, filters, depth * taps * taps), "x": draw(3, 1, channels, n, n),
                "bias": draw(4, filters)}
    label = f"convolution-{channels}-{filters}-{taps}x{taps}-{groups}"
    return Kernel(label if precision == "f32" else f"{label}-{precision}", "_conv2d",
                  program(inputs, lines, {"y": "%y"}), arrays, sizes,
                  tolerance=policy.tolerance)


def attention():
    inputs = {"x": "(b, n, 2304), f32", "mask": "(b, 1, n, n), f32"}
    lines = [f"let %{name} = slice(%x) {{axes = [2], starts = ({i * 768},), "
             f"ends = ({(i + 1) * 768},), steps = [1]}};" for i, name in enumerate("qkv")]
    lines.append("let %y = attention(%q, %k, %v, %mask) {heads = 12, scale = 0.125};")

    def arrays(n):
        mask = np.where(draw(3, 1, 1, n, n) < 1.5, 0, -1e4).astype(np.float32)
        return {"x": draw(4, 1, n, 2304), "mask": mask}
    return Kernel("attention-12x64", "_attention", program(inputs, lines, {"y": "%y"}), arrays)


def layer_norm():
    inputs = {"x": "(n, 768), f32", "scale": "(768), f32", "shift": "(768), f32"}
    lines = ["let %y = layer_norm(%x, %scale, %shift) {axis = 1, epsilon = 1e-12};"]
    return Kernel("layer-norm-768", "_layer_norm", program(inputs, lines, {"y": "%y"}),
                  lambda n: {"x": draw(5, n, 768), "scale": draw(6, 768), "shift": draw(7, 768)})


def lstm_cell(hidden=512, steps=16):
    inputs, lines = weights_of(1, hidden, 4 * hidden, "f32")
    inputs.update({f"x{i}": f"(1, {4 * hidden}), f32" for i in range(steps)})
    inputs.update(h=f"(1, {hidden}), f32", c=f"(1, {hidden}), f32")
    h, c = "%h", "%c"
    for i in range(steps):
        lines += [f"let %both{i} = lstm_cell(%x{i}, {h}, {c}, %w0);",
                  f"let %h{i} = %both{i}[0];", f"let %c{i} = %both{i}[1];"]
        h, c = f"%h{i}", f"%c{i}"

    def arrays(_):
        return {**vectors(1, hidden, 4 * hidden),
                **{f"x{i}": draw(10 + i, 1, 4 * hidden) for i in range(steps)},
                "h": draw(8, 1, hidden), "c": draw(9, 1, hidden)}
    return Kernel(f"lstm-cell-{hidden}", "_lstm_cell", program(inputs, lines, {"h": h, "c": c}),
                  arrays, sizes=(1,))


def lstm_steps(hidden=512):
    """All steps of a sequence of n: where the blocks fit the GPU, its weights stay on chip."""
    inputs, lines = weights_of(1, hidden, 4 * hidden, "f32")
    inputs.update(x=f"(n, 1, {4 * hidden}), f32", h=f"(1, {hidden}), f32", c=f"(1, {hidden}), f32")
    lines += ["let %all = lstm_steps(%x, %h, %c, %w0) {reverse = false};", "let %y = %all[0];"]

    def arrays(n):
        return {**vectors(1, hidden, 4 * hidden), "x": draw(10, n, 1, 4 * hidden),
                "h": draw(8, 1, hidden), "c": draw(9, 1, hidden)}
    return Kernel(f"lstm-steps-{hidden}", "_lstm_steps", program(inputs, lines, {"y": "%y"}), arrays)


def kernels():
    """What is tried, the most important first."""
    products = [(768, 2304, ""), (768, 3072, "gelu"), (3072, 768, "residual"),
                (768, 768, "residual")]
    all_kernels = [product(k, n, follow, "f32") for k, n, follow in products]
    all_kernels += [attention(), lstm_cell(), lstm_steps(), layer_norm()]
    all_kernels += [product(k, n, follow, precision) for precision in ("bf16", "tf32")
                    for k, n, follow in products]
    all_kernels += [product(k, n, "", "bf16", MANY_ROWS) for k, n in ((768, 3072), (3072, 768))]
    all_kernels += [convolution(64, 64, 3), convolution(64, 64, 3, precision="tf32"),
                    convolution(64, 64, 3, precision="bf16"), convolution(256, 64, 1)]
    return {kernel.name: kernel for kernel in all_kernels}


# ------------------------------------------------------------------ configurations

# The units of gpu_matmul, and how many threads have a tile: a test compares them with the template's
# (compiler/kernels/templates/gpu_matmul.h).
UNITS = {"simt": 1, "mma": 32, "wgmma": 128, "wgmma-tma": 128}
# Those that multiply with groups of warps; tiles of the second come as boxes.
GROUPS = ("wgmma", "wgmma-tma")
# Their schedules that are always tried, as no GPU had run any when they were chosen: few rows, then
# many. Knobs in the order of GROUP_KNOBS; a group's tile has 64 rows.
GROUP_KNOBS = ("block_rows", "block_columns", "tile_columns", "k_step", "k_split", "stages")
GROUP_SCHEDULES = ((64, 16, 16, 128, 4, 4), (64, 32, 32, 128, 2, 4), (64, 32, 32, 128, 1, 4),
                   (64, 64, 64, 64, 1, 4), (64, 64, 32, 128, 2, 3), (64, 128, 128, 64, 1, 4),
                   (128, 64, 64, 64, 1, 4), (128, 128, 128, 64, 1, 4), (128, 128, 64, 64, 1, 3))


def groups_of_warps(default, knobs):
    """Those schedules, with each of the units that the kernel's template offers for the target."""
    return [{**default, "unit": unit, "tile_rows": 64, **dict(zip(GROUP_KNOBS, schedule))}
            for unit in GROUPS if unit in knobs.get("unit", ()) for schedule in GROUP_SCHEDULES]


def is_plausible(config):
    """Whether a schedule of gpu_matmul has a sensible number of threads; others always."""
    if "tile_rows" not in config:
        return True
    unit = config["unit"]
    tiles = (config["block_rows"] // config["tile_rows"]
             * (config["block_columns"] // config["tile_columns"]))
    threads = tiles * config["k_split"] * UNITS[unit]
    per_thread = config["tile_rows"] * config["tile_columns"]
    if unit in GROUPS and (config["tile_rows"] % 64 or config["tile_columns"] < 16
                           or config["stages"] < 3):
        return False
    return 64 <= threads <= 512 and (UNITS[unit] > 1 or 4 <= per_thread <= 64)


def sample(default, knobs, seed):
    """Yields distinct configurations without end, or until no other is found: in turns one with one
    to three knobs changed, and one drawn from all."""
    generator = random.Random(seed)
    seen = [default]
    every = [name for name, choices in knobs.items() if len(choices) > 1]
    few = len(list(itertools.islice(itertools.product(*knobs.values()), 513))) <= 512
    if few:
        all_of_them = [dict(zip(knobs, values)) for values in itertools.product(*knobs.values())]
        generator.shuffle(all_of_them)
        yield from (config for config in all_of_them
                    if config != default and is_plausible(config))
        return
    misses = 0
    for turn in itertools.count():
        names = every if turn % 2 else generator.sample(
            every, generator.randint(1, min(3, len(every))))
        config = {**default, **{name: generator.choice(knobs[name]) for name in names}}
        if config in seen or not is_plausible(config):
            misses += 1
            if misses > 20000:
                return
            continue
        misses = 0
        seen.append(config)
        yield config


def in_order(default, knobs, seed):
    """Yields configurations, each with whether it was drawn: the default one and the fixed ones
    come first."""
    fixed = [default, *groups_of_warps(default, knobs)]
    yield from ((config, False) for config in fixed)
    yield from ((config, True) for config in sample(default, knobs, seed) if config not in fixed)


# ------------------------------------------------------------------ results

def kernel_ns(profile, kernel, config):
    """The mean time of the kernel's calls in ns, of a profile; None if there is none of the
    configuration."""
    rows = [row for row in profile["kernels"]
            if row["name"].endswith(kernel) and json.loads(row["config"]) == config]
    count = sum(row["count"] for row in rows)
    return sum(row["total_ns"] for row in rows) / count if count else None


def ranking(rows):
    """{kernel: {size: rows from fast to slow}}, each with its time over the default's (`ratio`)."""
    out = {}
    for row in rows:
        for size, ns in row.get("ns", {}).items():
            out.setdefault(row["kernel"], {}).setdefault(size, []).append(
                {"ns": ns, "config": row["config"], "default": row["default"]})
    for sizes in out.values():
        for size, found in sizes.items():
            found.sort(key=lambda row: row["ns"])
            default = next((row["ns"] for row in found if row["default"]), None)
            for row in found:
                row["ratio"] = row["ns"] / default if default else None
    return out


def joint(rows):
    """{kernel: rows from fast to slow}, by the geometric mean over sizes of the time over the
    default's: what one configuration for all sizes should be."""
    out = {}
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        of_kernel = [row for row in rows if row["kernel"] == kernel and row.get("ns")]
        default = next((row["ns"] for row in of_kernel if row["default"]), None)
        if not default:
            continue
        found = [{"config": row["config"], "default": row["default"],
                  "ratio": float(np.exp(np.mean([np.log(row["ns"][size] / default[size])
                                                 for size in default])))}
                 for row in of_kernel if row["ns"].keys() == default.keys()]
        out[kernel] = sorted(found, key=lambda row: row["ratio"])
    return out


def changes(config, default):
    """What of a configuration differs from the default one, for people."""
    return ", ".join(f"{name} {value}" for name, value in config.items()
                     if default.get(name) != value) or "the default"


def lines(rows, most=5):
    """The tables for people."""
    out = []
    orders = joint(rows)
    for kernel, sizes in ranking(rows).items():
        default = next((row["config"] for row in rows
                        if row["kernel"] == kernel and row["default"]), {})
        text = ", ".join(f"{name} {value}" for name, value in default.items())
        out += [f"### {kernel}", "", f"The default: {text}.", "",
                "| size | us | of the default's | configuration |", "| --- | --- | --- | --- |"]
        for size, found in sizes.items():
            groups = [next((row for row in found if row["config"].get("unit") == unit), None)
                      for unit in GROUPS]
            shown = found[:most] + [row for row in found[most:]
                                    if row["default"] or any(row is group for group in groups)]
            for row in shown:
                ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
                out.append(f"| {size} | {row['ns'] / 1000:.1f} | {ratio} | "
                           f"{changes(row['config'], default)} |")
        for row in orders.get(kernel, [])[:most]:
            out.append(f"| all | | {row['ratio']:.2f} | {changes(row['config'], default)} |")
        out.append("")
    problems = [row for row in rows if row.get("problem")]
    if problems:
        out += [f"{len(problems)} of {len(rows)} candidates failed:", ""]
        out += [f"- {row['kernel']}, {changes(row['config'], {})}: {row['problem']}"
                for row in problems[:20]] + [""]
    return out
