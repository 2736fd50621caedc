"""Names that experiments use of each other's modules exist: what a run reaches only after minutes
of tuning is found here at once."""

import ast
import importlib
import pathlib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def modules_of(tree):
    """Returns {local name: modules} of the imported modules of experiments; functions may give one
    name to several."""
    found = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("experiments"):
            continue
        for alias in node.names:
            if (ROOT / node.module.replace(".", "/") / f"{alias.name}.py").exists():
                found.setdefault(alias.asname or alias.name, set()).add(
                    f"{node.module}.{alias.name}")
    return found


def shadowed(tree):
    """Returns the names that something but an import binds anywhere in a file."""
    names = {node.id for node in ast.walk(tree)
             if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def missing_names(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {name: found for name, found in modules_of(tree).items()
               if name not in shadowed(tree)}
    out = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
                and node.value.id in modules):
            continue
        try:
            found = [importlib.import_module(module) for module in modules[node.value.id]]
        except ImportError:  # a peer that this environment lacks
            continue
        if not any(hasattr(module, node.attr) for module in found):
            out.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.value.id}.{node.attr}")
    return out


class Names(unittest.TestCase):
    def test_what_is_used_of_a_module_exists(self):
        missing = [name for path in sorted((ROOT / "experiments").rglob("*.py"))
                   for name in missing_names(path)]
        self.assertEqual(missing, [])

    def test_what_does_not_exist_is_told(self):
        import tempfile
        with tempfile.NamedTemporaryFile("w", suffix=".py", dir=ROOT / "experiments") as file:
            file.write("from experiments.harness import flags\nflags.in_hours('1m')\nflags.in_seconds('1m')\n")
            file.flush()
            self.assertEqual([name.split(": ")[1] for name in missing_names(pathlib.Path(file.name))],
                             ["flags.in_hours"])
