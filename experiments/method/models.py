"""BERT's dense products, each a model of its own in text IR."""

from experiments.regret import models

PRODUCTS = {"768x768": (768, 768), "768x3072": (768, 3072), "3072x768": (3072, 768)}


def write(name, folder):
    """Writes x (n, K) → x · w + b (n, N) with drawn weights; returns the file."""
    k, n = PRODUCTS[name]
    text = f"""fn @main(%x: Tensor[(n, {k}), f32]) -> Tensor[(n, {n}), f32] {{
  let %product = matmul(%x, const("w"));
  let %y = add(%product, const("b"));
  %y
}}
"""
    first = 200 + 2 * list(PRODUCTS).index(name)
    return models.write(folder / f"dense-{name}.nir", text,
                        models.drawn({"w": (k, n), "b": (n,)}, first))
