"""One worker: compiles and runs cases, one after the other, and says how each went.

It is a process of its own, and its compiler another one that stays (`nimble compile --batch -`),
so that starting costs nothing per case while a crash of either costs one case.
"""

import os
import pathlib
import re
import time

import numpy as np
import onnx

from experiments.harness.batch import Compiler, CompilerDied, one_line

MUST_BE_CONSTANT = re.compile(r"^input \d+ \((.+?)\) (?:is not constant|depends on)")


def operator_of(error, case):
    """Returns the operator that an error is about."""
    match = (re.search(r"unsupported nodes?: (\w+) \(", error["problem"])
             or re.search(r": node .*\((\w+)\)", error["place"]))
    return match.group(1) if match else case.operator


def fix_input(model, case, error):
    """Makes the input that the compiler must know, and that an error names, an initialiser.

    Returns its name, or None where the error is about something else. The tests feed everything as
    an input, axes, pads and scales included; models have these as constants.
    """
    match = MUST_BE_CONSTANT.search(error)
    names = [value.name for value in model.graph.input]
    if not match or match.group(1) not in names or len(case.data_sets) != 1:
        return None
    name = match.group(1)
    if any(t.name == name for t in model.graph.initializer):
        return None
    value = np.asarray(case.data_sets[0][0][names.index(name)])
    model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return name


def check(case, graph, path, onnx_runner, nimble):
    """Runs a compiled case on its data; an AssertionError says what differs."""
    model = nimble.Model(path)
    session = nimble.Session(model, threads=1)
    constants = {t.name for t in graph.initializer}
    values = [value for value in graph.input if value.name not in constants]
    plain = all(value.type.HasField("tensor_type") for value in [*values, *graph.output])
    for inputs, expected in case.data_sets:
        given = dict(zip((value.name for value in graph.input), inputs))
        if plain:
            results = list(session.run({v.name: to_nimble(given[v.name]) for v in values}).values())
            results = [from_nimble(r, e) for r, e in zip(results, expected)]
        else:
            results = session.run_values({v.name: value_of(given[v.name], v.type, model, nimble)
                                          for v in values})
            results = [plain_of(r, value.type, model)
                       for r, value in zip(results.values(), graph.output)]
        if case.drawn:
            assert_drawn_alike(expected, results)
            continue
        onnx_runner.assert_similar_outputs(ref_outputs=expected, outputs=results, rtol=case.rtol,
                                           atol=case.atol, model_dir=case.name)


def assert_drawn_alike(expected, results):
    """Shapes and types, and that a draw of 0 or 1 is one; other generators draw others."""
    assert len(expected) == len(results), f"{len(results)} results"
    for wanted, result in zip(expected, results):
        assert (wanted.shape, wanted.dtype) == (result.shape, result.dtype), (
            f"{result.dtype} {result.shape} instead of {wanted.dtype} {wanted.shape}")
        if np.isin(wanted, (0, 1)).all():
            assert np.isin(result, (0, 1)).all(), f"drew {np.unique(result)[:5]}"


def to_nimble(value):
    array = np.asarray(value)
    # numpy has no bfloat16 of its own; nimble takes its bits.
    return array.view("V2") if array.dtype.name == "bfloat16" else array


def give_rank(model, case, place):
    """States the rank of an input's elements that the model leaves open; returns its name.

    A file may say of a sequence that it holds floats; nimble's ranks are static.
    """
    name = place.rpartition(": input ")[2]
    names = [value.name for value in model.graph.input]
    kind = model.graph.input[names.index(name)].type
    value = case.data_sets[0][0][names.index(name)]
    while not kind.HasField("tensor_type"):
        kind = (kind.sequence_type if kind.HasField("sequence_type") else
                kind.optional_type).elem_type
        value = value[0] if isinstance(value, list) and value else value
    if isinstance(value, list) or value is None:
        return None
    for _ in np.shape(value):
        kind.tensor_type.shape.dim.add()
    return name


def value_of(value, kind, model, nimble):
    """Returns a tensor, list or None as the Value that an input of this ONNX type takes."""
    fields = nimble.Value.fields
    if kind.HasField("sequence_type"):
        made = fields(model.tag("SequenceEmpty"), [])
        for item in value:
            item = value_of(item, kind.sequence_type.elem_type, model, nimble)
            made = fields(model.tag("SequenceOf"), [made, item])
        return made
    if kind.HasField("optional_type"):
        if value is None:
            return fields(model.tag("OptionalEmpty"), [])
        return fields(model.tag("OptionalOf"),
                      [value_of(value, kind.optional_type.elem_type, model, nimble)])
    return nimble.Value.tensor(to_nimble(value))


def plain_of(value, kind, model):
    """The inverse of value_of."""
    if kind.HasField("sequence_type"):
        items = []
        while value.tag == model.tag("SequenceOf"):
            items.append(plain_of(value[1], kind.sequence_type.elem_type, model))
            value = value[0]
        return items[::-1]
    if kind.HasField("optional_type"):
        if value.tag == model.tag("OptionalEmpty"):
            return None
        return plain_of(value[0], kind.optional_type.elem_type, model)
    return value.array()


def from_nimble(result, expected):
    if result.dtype == np.dtype("V2"):
        import ml_dtypes
        return result.view(ml_dtypes.bfloat16)
    return result


def outcome(case, folder, compiler, onnx_runner, nimble):
    """Returns (status, operator, error, inputs fixed at compile time) of a case."""
    model, path = folder / f"{case.name}.onnx", folder / f"{case.name}.nimble"
    proto, fixed = case.model, []
    try:
        while True:
            model.write_bytes(proto.SerializeToString())
            report = compiler.compile(model, path)
            if report["status"] != "unsupported":
                break
            if not fixed:
                proto = onnx.ModelProto.FromString(case.model.SerializeToString())
            name = (give_rank(proto, case, report["place"]) if report["problem"] == "has no rank"
                    else fix_input(proto, case, report["problem"]))
            if name is None:
                break
            fixed.append(name)
        if report["status"] != "ok":
            error = one_line(f"{report['problem']}; {report['remedy']}").replace(str(model), "model")
            status = "unsupported" if report["status"] == "unsupported" else "failed"
            return status, operator_of(report, case), error, fixed
        check(case, proto.graph, path, onnx_runner, nimble)
        return "passed", case.operator, "", fixed
    except CompilerDied as error:
        return "crashed", case.operator, one_line(error), fixed
    except (AssertionError, nimble.NimbleError, TypeError, ValueError) as error:
        return "failed", case.operator, one_line(error).replace(str(path), "model")[:600], fixed
    finally:
        model.unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def main(cases, folder, pipe):
    """Answers each number of a case that arrives with its outcome, until None arrives."""
    from onnx.backend.test.runner import Runner
    from scripts import nimble_ctypes
    os.environ["OMP_NUM_THREADS"] = "1"
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    compiler = Compiler(folder / "compiler.log")
    while (number := pipe.recv()) is not None:
        start = time.monotonic()
        result = outcome(cases[number], folder, compiler, Runner, nimble_ctypes)
        pipe.send((number, *result, time.monotonic() - start))
    compiler.close()
