"""What an exported model is here: a module, its inputs by size, and which sizes there are.

A size is a name, `n`, and the range that runs draw it from. An input names its dynamic axes by
sizes; equal names are equal extents, which both exporters are told. The exporters' example has
sizes of its own, distinct from each other, from every constant of the model and from 0 and 1,
which torch.export takes for constants.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import torch

TORCHSCRIPT, TORCH_EXPORT = "torchscript", "torch.export"
EXPORTERS = (TORCHSCRIPT, TORCH_EXPORT)
EXAMPLES = (5, 7, 11, 13, 17)


@dataclasses.dataclass
class Input:
    """One input: its dims (integers or names of sizes) and how its values are drawn."""

    name: str
    dims: tuple
    draw: Callable  # (numpy generator, shape, sizes) -> array


@dataclasses.dataclass
class Entry:
    """A model: `make(exporter)` gives the module, seeded by the caller."""

    name: str
    group: str
    make: Callable
    inputs: list
    sizes: dict  # name -> (lowest, highest); of multiples: (lowest, highest, divisor)
    about: str
    translations: Callable | None = None  # of operators of the model's own, see detection.py

    def draw_sizes(self, generator):
        """Returns one extent a size; the same generator state gives the same sizes."""
        out = {}
        for name, (low, high, *rest) in self.sizes.items():
            step = rest[0] if rest else 1
            out[name] = step * int(generator.integers(-(-low // step), high // step + 1))
        return out

    def example_sizes(self):
        """Returns the sizes of the exporters' example."""
        out, primes = {}, iter(EXAMPLES)
        for name, (low, high, *rest) in self.sizes.items():
            step = rest[0] if rest else 1
            out[name] = step * min(high // step, max(-(-low // step), next(primes)))
        return out

    def draw_inputs(self, generator, sizes):
        """Returns {name: array} for these sizes."""
        return {i.name: i.draw(generator, tuple(sizes.get(d, d) for d in i.dims), sizes)
                for i in self.inputs}


def normal(generator, shape, sizes):
    return generator.standard_normal(shape).astype(np.float32)


def uniform(generator, shape, sizes):
    return generator.random(shape, dtype=np.float32)


def below(bound):
    """Draws int64 from [0, bound); bound: an integer or the name of a size."""
    def draw(generator, shape, sizes):
        return generator.integers(0, sizes.get(bound, bound), size=shape, dtype=np.int64)
    return draw


def lengths(longest):
    """Draws lengths 1 … sizes[longest], the first the longest, descending as packing wants them."""
    def draw(generator, shape, sizes):
        n = sizes[longest]
        out = generator.integers(1, n + 1, size=shape, dtype=np.int64)
        out[0] = n
        return -np.sort(-out)
    return draw


def padding(generator, shape, sizes):
    """Draws a bool mask (b, n) of padding, true beyond each row's length of 1 or more."""
    length = generator.integers(1, shape[1] + 1, size=(shape[0], 1))
    return np.arange(shape[1])[None, :] >= length


def keep(generator, shape, sizes):
    """Draws an int64 mask (b, n): 1 up to each row's length, then 0."""
    return (~padding(generator, shape, sizes)).astype(np.int64)


def bools(share):
    def draw(generator, shape, sizes):
        return generator.random(shape) < share
    return draw


def floats(*dims, name="x"):
    return Input(name, dims, normal)


def always(module):
    """The same module for both exporters."""
    return lambda exporter: module()


def scripted(module):
    """torch.jit.script for the exporter of TorchScript; the module itself for the other one."""
    return lambda exporter: (torch.jit.script(module().eval()) if exporter == TORCHSCRIPT
                             else module())


def collect():
    """Returns all models, group by group."""
    from experiments.exporters.models import (attention, audio, control, detection, images,
                                              indexing, recurrent, transformer)
    entries = []
    for group in (recurrent, attention, transformer, images, detection, audio, indexing, control):
        entries += group.MODELS
    names = [entry.name for entry in entries]
    assert len(names) == len(set(names)), "two models have one name"
    return entries
