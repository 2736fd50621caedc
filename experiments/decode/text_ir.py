"""Writes the decoder as text IR: the whole generation of a sequence is one call of @main.

    python -m experiments.decode.text_ir tiny greedy decode.nir    (also: sample, beam)

writes decode.nir and, with the weights, decode.nir.safetensors.

  greedy  (input_ids (n) i64, max_new () i64) -> ids (t) i64
  sample  the same and temperature () f32, uniform (max_new) f32: the draw for each new token, in
          [0, 1). The randomness is an input, so that a run can be repeated and compared, and so
          that no state hides in the program.
  beam    (input_ids (n) i64, max_new () i64) -> (sequences (4, ?) i64, scores (4) f32): the best
          four and the sums of their tokens' log-probabilities; behind its end token a sequence is
          padded with that

The loop is a function that calls itself. Each layer's keys and values are two of its parameters,
(positions, width), which a step extends by a row with `concat`: the pass grow-tensors makes that an
append in place. Attention reads them where they lie. Beam search reorders the caches by the beams
that go on, which copies them; what it appends in place are two tensors (steps, beams), the tokens
and which beam each one extends, from which the sequences are read backwards at the end.
"""

import pathlib
import sys

import numpy as np

from experiments.decode.weights import CONFIGS, weights
from experiments.lstm.weights import write_safetensors

TOP_K = 10  # of sampling
BEAMS = 4

SIGNATURES = {
    "greedy": 'inputs = ["input_ids", "max_new"], outputs = ["ids"], defaults = ["", ""]',
    "sample": 'inputs = ["input_ids", "max_new", "temperature", "uniform"], outputs = ["ids"], '
              'defaults = ["", "", "ones", ""]',
    "beam": 'inputs = ["input_ids", "max_new"], outputs = ["sequences", "scores"], '
            'defaults = ["", ""]',
}


class Body:
    """The lines of a block, each a `let` with a name of its own."""

    def __init__(self, indent):
        self.indent, self.lines, self.count = indent, [], 0

    def let(self, value, name=None):
        """Binds `value`; returns its name."""
        if name is None:
            self.count += 1
            name = f"t{self.count}"
        self.lines.append(f"{' ' * self.indent}let %{name} = {value};")
        return f"%{name}"

    def __str__(self):
        return "\n".join(self.lines)


def decoder_layers(b, config, x, cache, mask):
    """Writes all layers and the last norm. `x`: hidden states (b, n, width); `cache(i, k, v)` writes
    how layer i's new keys and values (b, n, width) join the old ones and returns both as attention
    takes them, (b, m, width)."""
    w = config.width

    def linear(x, name):
        y = b.let(f'matmul({x}, const("{name}.weight"))')
        return b.let(f'add({y}, const("{name}.bias"))')

    def norm(x, name):
        return b.let(f'layer_norm({x}, const("{name}.weight"), const("{name}.bias")) '
                     "{epsilon = 1e-5, axis = -1}")

    scale = float(1 / np.sqrt(w // config.heads))
    for i in range(config.layers):
        qkv = linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
        q, k, v = (b.let(f"slice({qkv}) {{axes = [2], starts = ({j * w}), ends = ({(j + 1) * w})}}")
                   for j in range(3))
        k, v = cache(i, k, v)
        seen = b.let(f"attention({', '.join([q, k, v] + mask)}) "
                     f"{{heads = {config.heads}, scale = {scale!r}}}")
        x = b.let(f"add({x}, {linear(seen, f'h.{i}.attn.c_proj')})")
        hidden = b.let(f"gelu_tanh({linear(norm(x, f'h.{i}.ln_2'), f'h.{i}.mlp.c_fc')})")
        x = b.let(f"add({x}, {linear(hidden, f'h.{i}.mlp.c_proj')})")
    return norm(x, "ln_f")


def embed(b, tokens, positions):
    token = b.let(f'gather(const("wte.weight"), {tokens}) {{axis = 0}}')
    position = b.let(f'gather(const("wpe.weight"), {positions}) {{axis = 0}}')
    return b.let(f"add({token}, {position})")


def head(b, hidden):
    """The logits (b, vocabulary) of hidden states (b, width)."""
    return b.let(f'matmul({hidden}, const("wte.weight")) {{transpose_b = true}}', "logits")


def prefill(b, config):
    """Runs the prompt %ids (n). Binds %logits (1, vocabulary); returns the caches (n, 1, width)."""
    caches = []

    def cache(i, k, v):
        caches.append([b.let(f"transpose({part}) {{axes = [1, 0, 2]}}") for part in (k, v)])
        return k, v

    ids = b.let("unsqueeze(%ids) {axes = [0]}")
    positions = b.let("range() {count = n, start = 0, step = 1, dtype = i64}")
    row = b.let(f"unsqueeze({positions}) {{axes = [1]}}")
    column = b.let(f"unsqueeze({positions}) {{axes = [0]}}")
    mask = b.let(f"less_equal({column}, {row})")
    x = decoder_layers(b, config, embed(b, ids, positions), cache, [mask])
    x = b.let(f"squeeze({x}) {{axes = [0]}}")
    last = b.let(f"take_row({x}, {b.let('size() {value = n - 1}')})")
    head(b, b.let(f"unsqueeze({last}) {{axes = [0]}}"))
    return caches


def step(b, config, tokens, old):
    """Runs one token a sequence, `tokens` (beams) i64, at position m. `old`: the caches (m, beams,
    width). Binds %logits (beams, vocabulary); returns the caches (m + 1, beams, width)."""
    caches = []

    def cache(i, k, v):
        grown, seen = [], []
        for part, before in zip((k, v), old[i]):
            row = b.let(f"transpose({part}) {{axes = [1, 0, 2]}}")
            grown.append(b.let(f"concat({before}, {row}) {{axis = 0}}"))
            seen.append(b.let(f"transpose({grown[-1]}) {{axes = [1, 0, 2]}}"))
        caches.append(grown)
        return seen

    ids = b.let(f"unsqueeze({tokens}) {{axes = [1]}}")
    position = b.let("full() {shape = (1), dtype = i64, value = 0.0}")
    position = b.let(f"add({position}, {b.let('size() {value = m}')})")
    x = decoder_layers(b, config, embed(b, ids, position), cache, [])
    head(b, b.let(f"squeeze({x}) {{axes = [1]}}"))
    return caches


# How token number t is chosen from %logits (1, vocabulary).
GREEDY = """\
  let %best = argmax(%logits) {axis = 1, keepdims = false};
"""
SAMPLE = f"""\
  let %top = topk(%logits) {{axis = 1, largest = true, k = {TOP_K}}};
  let %values = %top[0];
  let %ranked = %top[1];
  let %cooled = div(%values, %temperature);
  let %p = softmax(%cooled) {{axis = 1}};
  let %reached = cumsum(%p) {{axis = 1}};
  let %number = size() {{value = t}};
  let %draw = take_row(%uniform, %number);
  let %passed = less_equal(%reached, %draw);
  let %ones = cast(%passed) {{dtype = i64}};
  let %rank = sum(%ones) {{axes = [0, 1], keepdims = false}};
  let %within = minimum(%rank, {TOP_K - 1}i64);
  let %within_1 = unsqueeze(%within) {{axes = [0]}};
  let %chosen = gather(%ranked, %within_1) {{axis = 1}};
  let %best = squeeze(%chosen) {{axes = [0]}};
"""


def flat(caches):
    return ", ".join(name for pair in caches for name in pair)


def cache_parameters(names, extents):
    return ",\n    ".join(f"{k}: Tensor[{extents}, f32], {v}: Tensor[{extents}, f32]"
                          for k, v in names)


def sequence_program(config, kind):
    """Greedy or sampled decoding."""
    extra = ", %temperature: Tensor[(), f32], %uniform: Tensor[(u), f32]" if kind == "sample" else ""
    passed = ", %temperature, %uniform" if kind == "sample" else ""
    names = [(f"%k{i}", f"%v{i}") for i in range(config.layers)]
    start, more = Body(4), Body(4)
    prompt_caches = prefill(start, config)
    longer = step(more, config, "%best", names)
    return f"""\
// The prompt, then a token at a time, until the end token, max_new tokens or the last position.
fn @main(%ids: Tensor[(n), i64], %max_new: Tensor[(), i64]{extra}) -> Tensor[(?), i64] {{
  let %length = size() {{value = n}};
  let %room = sub({config.context}i64, %length);
  let %limit = minimum(%max_new, %room);
  let %some = less(0i64, %limit);
  let %r = if (%some) {{
{start}
    let %new = @decode(i64[0]{{}}, %logits, %limit{passed},
        {flat(prompt_caches)});
    let %all = concat(%ids, %new) {{axis = 0}};
    %all
  }} else {{ %ids }};
  %r
}}

fn @decode(%new: Tensor[(t), i64], %logits: Tensor[(1, {config.vocabulary}), f32],
    %limit: Tensor[(), i64]{extra},
    {cache_parameters(names, f"(m, 1, {config.width})")}) -> Tensor[(?), i64] {{
{GREEDY if kind == "greedy" else SAMPLE}  let %longer = concat(%new, %best) {{axis = 0}};
  let %token = squeeze(%best) {{axes = [0]}};
  let %ended = equal(%token, {config.end}i64);
  let %made = size() {{value = t + 1}};
  let %full = greater_equal(%made, %limit);
  let %done = or(%ended, %full);
  let %r = if (%done) {{ %longer }} else {{
{str(more).replace("let %logits ", "let %next ")}
    let %rest = @decode(%longer, %next, %limit{passed},
        {flat(longer)});
    %rest
  }};
  %r
}}
"""


def beam_program(config):
    """Beam search over BEAMS sequences."""
    names = [(f"%k{i}", f"%v{i}") for i in range(config.layers)]
    start, more = Body(4), Body(4)
    prompt_caches = [[start.let(f"expand({part}) {{shape = (n, {BEAMS}, {config.width})}}")
                      for part in pair] for pair in prefill(start, config)]
    ordered = [[more.let(f"gather({part}, %parent) {{axis = 1}}") for part in pair]
               for pair in names]
    longer = step(more, config, "%token", ordered)
    vocabulary, beams = config.vocabulary, BEAMS
    return f"""\
fn @main(%ids: Tensor[(n), i64], %max_new: Tensor[(), i64])
    -> (Tensor[({beams}, ?), i64], Tensor[({beams}), f32]) {{
  let %prompt = unsqueeze(%ids) {{axes = [0]}};
  let %prompts = expand(%prompt) {{shape = ({beams}, n)}};
  let %length = size() {{value = n}};
  let %room = sub({config.context}i64, %length);
  let %limit = minimum(%max_new, %room);
  let %some = less(0i64, %limit);
  let %r = if (%some) {{
{start}
    // The first tokens all extend the prompt.
    let %p = log_softmax(%logits) {{axis = 1}};
    let %p_flat = squeeze(%p) {{axes = [0]}};
    let %best = topk(%p_flat) {{axis = 0, largest = true, k = {beams}}};
    let %scores = %best[0];
    let %token = %best[1];
    let %tokens = unsqueeze(%token) {{axes = [0]}};
    let %parent = full() {{shape = ({beams}), dtype = i64, value = 0.0}};
    let %parents = full() {{shape = (1, {beams}), dtype = i64, value = 0.0}};
    let %found = @search(%tokens, %parents, %token, %parent, %scores, %limit,
        {flat(prompt_caches)});
    let %all_tokens = %found[0];
    let %all_parents = %found[1];
    let %final = %found[2];
    let %new = @read_back(%all_tokens, %all_parents);
    let %sequences = concat(%prompts, %new) {{axis = 1}};
    let %result = (%sequences, %final);
    %result
  }} else {{
    let %zeros = full() {{shape = ({beams}), dtype = f32, value = 0.0}};
    let %result = (%prompts, %zeros);
    %result
  }};
  %r
}}

// Beam b of the last step ends in %token[b] and extends beam %parent[b] of the step before: its
// cache is number %parent[b].
fn @search(%tokens: Tensor[(s, {beams}), i64], %parents: Tensor[(s, {beams}), i64],
    %token: Tensor[({beams}), i64], %parent: Tensor[({beams}), i64],
    %scores: Tensor[({beams}), f32], %limit: Tensor[(), i64],
    {cache_parameters(names, f"(m, {beams}, {config.width})")})
    -> (Tensor[(?, {beams}), i64], Tensor[(?, {beams}), i64], Tensor[({beams}), f32]) {{
  let %ended = equal(%token, {config.end}i64);
  let %ended_i = cast(%ended) {{dtype = i64}};
  let %count = sum(%ended_i) {{axes = [0], keepdims = false}};
  let %all_ended = equal(%count, {beams}i64);
  let %steps = size() {{value = s}};
  let %full = greater_equal(%steps, %limit);
  let %done = or(%all_ended, %full);
  let %r = if (%done) {{
    let %found = (%tokens, %parents, %scores);
    %found
  }} else {{
{more}
    // A sequence that has ended goes on with one more end token, at no cost.
    let %p = log_softmax(%logits) {{axis = 1}};
    let %numbers = range() {{count = {vocabulary}, start = 0, step = 1, dtype = i64}};
    let %is_end = equal(%numbers, {config.end}i64);
    let %only_end = where(%is_end, 0f32, f32[1]{{-inf}});
    let %over = unsqueeze(%ended) {{axes = [1]}};
    let %gain = where(%over, %only_end, %p);
    let %before = unsqueeze(%scores) {{axes = [1]}};
    let %totals = add(%before, %gain);
    let %flat = reshape(%totals) {{shape = ({beams * vocabulary})}};
    let %best = topk(%flat) {{axis = 0, largest = true, k = {beams}}};
    let %scores_2 = %best[0];
    let %place = %best[1];
    let %parent_2 = div(%place, {vocabulary}i64);
    let %token_2 = mod(%place, {vocabulary}i64);
    let %token_row = unsqueeze(%token_2) {{axes = [0]}};
    let %parent_row = unsqueeze(%parent_2) {{axes = [0]}};
    let %tokens_2 = concat(%tokens, %token_row) {{axis = 0}};
    let %parents_2 = concat(%parents, %parent_row) {{axis = 0}};
    let %rest = @search(%tokens_2, %parents_2, %token_2, %parent_2, %scores_2, %limit,
        {flat(longer)});
    %rest
  }};
  %r
}}

fn @read_back(%tokens: Tensor[(s, {beams}), i64], %parents: Tensor[(s, {beams}), i64]) {{
  let %at = range() {{count = {beams}, start = 0, step = 1, dtype = i64}};
  let %empty = full() {{shape = (s, {beams}), dtype = i64, value = 0.0}};
  let %last = size() {{value = s - 1}};
  let %rows = @back(%last, %at, %tokens, %parents, %empty);
  let %r = transpose(%rows) {{axes = [1, 0]}};
  %r
}}

fn @back(%i: Tensor[(), i64], %at: Tensor[({beams}), i64], %tokens: Tensor[(s, {beams}), i64],
    %parents: Tensor[(s, {beams}), i64], %out: Tensor[(s, {beams}), i64])
    -> Tensor[(s, {beams}), i64] {{
  let %more = greater_equal(%i, 0i64);
  let %r = if (%more) {{
    let %row = take_row(%tokens, %i);
    let %chosen = gather(%row, %at) {{axis = 0}};
    let %out_2 = write_row(%out, %i, %chosen);
    let %up = take_row(%parents, %i);
    let %at_2 = gather(%up, %at) {{axis = 0}};
    let %j = sub(%i, 1i64);
    let %rest = @back(%j, %at_2, %tokens, %parents, %out_2);
    %rest
  }} else {{ %out }};
  %r
}}
"""


def program(config, kind):
    """Returns the text of a program; `kind`: greedy, sample or beam."""
    body = beam_program(config) if kind == "beam" else sequence_program(config, kind)
    return f"signature @main {{{SIGNATURES[kind]}}};\n\n{body}"


def save(path, config, kind):
    """Writes the program and, beside it, its weights."""
    pathlib.Path(path).write_text(program(config, kind))
    write_safetensors(f"{path}.safetensors", weights(config))


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in CONFIGS or sys.argv[2] not in SIGNATURES:
        sys.exit("python -m experiments.decode.text_ir "
                 f"{'|'.join(CONFIGS)} {'|'.join(SIGNATURES)} FILE.nir")
    save(sys.argv[3], CONFIGS[sys.argv[1]], sys.argv[2])
