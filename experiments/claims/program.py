"""`experiments/run claims`: sentences of the paper's text that say something of cost, each measured.

BERT-base and an LSTM written as a loop, compiled for the host, for the stand-in device (which shows
each copy between devices), and without the passes that avoid copies.
"""

import argparse

from experiments.claims import tables
from experiments.harness.errors import WRONG_RESULT, exit_code
from experiments.harness.experiment import BUILD

FORMAT = 1
RUNS = 20
BERT_SIZES = [{"b": 1, "n": n} for n in (16, 53, 128)]
LSTM_SIZES = [{"n": 27}]
PASSES = ("update-in-place", "write-through")


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="experiments/run claims", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measures what the paper's text claims: placement, copies avoided, what shape "
                    "functions and instructions cost.",
        epilog="The table goes to standard output, results to experiments/results/claims.json, .md,"
               "\n.svg and .png; --quick writes claims-part.*.\n\n"
               "exit codes: 0 all claims hold, 3 not, 1 failure, 2 usage, 130 interrupted")
    parser.add_argument("--threads", type=int, default=2, metavar="N",
                        help="(default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    return parser.parse_args(arguments)


def probe(file, sizes, options):
    from experiments.studies import programs
    return programs.probe("experiments.claims.probe", {
        "file": str(file), "sizes": sizes, "threads": options.threads,
        "runs": 3 if options.quick else RUNS})


def fastest(files, sizes, options, rounds=3):
    """Returns for each executable the profile of its fastest round; rounds visit all in turn."""
    found = {}
    for _ in range(1 if options.quick else rounds):
        for name, file in files.items():
            new = probe(file, sizes, options)["runs"][-1]
            if name not in found or new["wall_us"] < found[name]["wall_us"]:
                found[name] = new
    return found


def loop(folder):
    """Writes the LSTM of one layer as a loop in text IR and returns its file."""
    from experiments.lstm.experiment import nimble_models
    return nimble_models(1, True, folder)["nimble"]


def execute(options, arguments):
    from experiments.harness import machine
    from experiments.memory_study.models import bert_folder
    from experiments.studies import output, programs
    programs.need("nimble-compile")

    def compiled(model, name, *more):
        return programs.compiled("claims", model, folder / f"{name}.nimble", None, *more)
    folder = BUILD / "claims"
    folder.mkdir(parents=True, exist_ok=True)
    models = {"BERT-base": (bert_folder(folder), BERT_SIZES),
              "LSTM": (loop(folder), LSTM_SIZES)}
    runs, sizes_of, passes = [], [], []
    for name, (model, sizes) in models.items():
        files = {"": compiled(model, name)}
        for left_out in PASSES:
            files[left_out] = compiled(model, f"{name}-{left_out}", "--disable-pass", left_out)
        found = probe(files[""], sizes, options)
        sizes_of.append({"model": name, "code": found["code"], "constants": found["constants"]})
        for at, run in zip(sizes, found["runs"]):
            runs.append({"model": name, "length": at["n"], "wall_us": run["wall_us"],
                         "kernel_us": run["kernel_us"], "shape": tables.shape_cost(run),
                         "overhead": tables.overhead(run), "instructions": run["instructions"]})
        by_pass = fastest(files, sizes[-1:], options)
        passes += [{"model": name, "pass": left_out,
                    **tables.without(by_pass[""], by_pass[left_out])} for left_out in PASSES]
    device = compiled(models["BERT-base"][0], "BERT-base-stand-in", "--device", "stand-in")
    quick = argparse.Namespace(threads=options.threads, quick=True)
    result = {"format": FORMAT, "experiment": "claims", **machine.provenance(arguments),
              "machine": machine.describe(machine.choose_cores(options.threads)),
              "threads": options.threads, "runs": runs, "passes": passes, "sizes": sizes_of,
              "placement": tables.placement(probe(device, BERT_SIZES[:1], quick)["runs"][0])}
    result["claims"] = tables.judge(result)
    output.write("claims-part" if options.quick else "claims", result, tables.markdown(result),
                 lambda figure: tables.draw(figure, result))
    return WRONG_RESULT if any(not claim["holds"] for claim in result["claims"]) else 0


def main(arguments):
    return exit_code(lambda: execute(parse_arguments(arguments), ["claims", *arguments]))
