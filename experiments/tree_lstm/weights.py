"""Weights, words and trees of the tree-lstm experiment, with numpy alone.

    python experiments/tree_lstm/weights.py FOLDER

writes what the command line needs into FOLDER: tree_lstm.nir.safetensors to compile with,
words.npy, and trees.txt with all trees of the workload as values (docs/values.md), for
`nimble bench tree_lstm.nimble --values tree=FOLDER/trees.txt`.

The trees are shapes from the Stanford Sentiment Treebank; their words are drawn from a vocabulary of
random vectors. Numbers come from the generator of experiments/lstm/weights.py.
"""

import collections
import functools
import pathlib
import sys

import numpy as np

if __package__ in (None, ""):  # run as a program
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.lstm.weights import uniform, write_safetensors  # noqa: E402

INPUT, HIDDEN, VOCABULARY = 300, 150, 2048
FILE = pathlib.Path(__file__).resolve().parents[1] / "workloads" / "sst-trees.tsv"
# Stream numbers, beyond those of the lstm experiment; a new tensor takes a new number.
SEEDS = {"weight_leaf": 16, "bias_leaf": 17, "weight_node": 18, "bias_node": 19,
         "weight_forget": 20, "bias_forget": 21, "words": 22}

# parents: each node's parent in post-order, -1 of the root; words: the vocabulary's row for each
# leaf, from left to right.
Tree = collections.namedtuple("Tree", "parents words")


def weights():
    """Returns the tensors of tree_lstm.nir. Rows of *_leaf (words) and *_node (the sum of the
    children's hidden states) are the gates input, output and update; *_forget is of one child."""
    scale = np.float32(1 / np.sqrt(HIDDEN))
    shapes = {"weight_leaf": (3 * HIDDEN, INPUT), "bias_leaf": (3 * HIDDEN,),
              "weight_node": (3 * HIDDEN, HIDDEN), "bias_node": (3 * HIDDEN,),
              "weight_forget": (HIDDEN, HIDDEN), "bias_forget": (HIDDEN,)}
    return {name: uniform(SEEDS[name], shape) * scale for name, shape in shapes.items()}


@functools.cache
def words():
    """Returns the vocabulary (2048, 300), read-only."""
    table = uniform(SEEDS["words"], (VOCABULARY, INPUT))
    table.flags.writeable = False
    return table


@functools.cache
def trees():
    """Returns {number of words: the trees that have so many}, in the file's order."""
    result, leaves = {}, 0
    with open(FILE, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("#"):
                continue
            parents = np.array(line.rstrip("\n").split("\t")[1].split(), np.int64)
            count = (len(parents) + 1) // 2
            # Knuth's multiplicative hash of the leaf's number in the file.
            numbers = np.arange(leaves, leaves + count, dtype=np.uint32) * np.uint32(2654435761)
            leaves += count
            result.setdefault(count, []).append(Tree(parents, (numbers >> 21).astype(np.int64)))
    return dict(sorted(result.items()))


def fold(tree, leaf, node):
    """Builds leaf(word) and node(left, right) from the leaves up; returns the root's."""
    children = {}
    next_word = iter(tree.words)
    for index, parent in enumerate(tree.parents):
        below = children.pop(index, None)
        made = node(*below) if below else leaf(next(next_word))
        children.setdefault(int(parent), []).append(made)
    return children[-1][0]


def text(tree):
    """Returns the tree as a value in text, with words in words.npy."""
    return fold(tree, lambda word: f"Leaf(@words.npy[{word}:{word + 1}])",
                lambda left, right: f"Node({left}, {right})")


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "tree_lstm.nir.safetensors", weights())
    np.save(folder / "words.npy", words())
    with open(folder / "trees.txt", "w", encoding="utf-8") as file:
        for group in trees().values():
            file.writelines(text(tree) + "\n" for tree in group)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.splitlines()[2].strip())
    main(pathlib.Path(sys.argv[1]))
