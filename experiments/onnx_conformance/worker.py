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
    session = nimble.Session(nimble.Model(path), threads=1)
    constants = {t.name for t in graph.initializer}
    names = [value.name for value in graph.input]
    for inputs, expected in case.data_sets:
        given = {name: to_nimble(value) for name, value in zip(names, inputs)
                 if name not in constants}
        results = list(session.run(given).values())
        results = [from_nimble(r, e) for r, e in zip(results, expected)]
        onnx_runner.assert_similar_outputs(ref_outputs=expected, outputs=results, rtol=case.rtol,
                                           atol=case.atol, model_dir=case.name)


def to_nimble(value):
    array = np.asarray(value)
    # numpy has no bfloat16 of its own; nimble takes its bits.
    return array.view("V2") if array.dtype.name == "bfloat16" else array


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
            name = fix_input(proto, case, report["problem"])
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
