"""`experiments/run churn`: random shapes in a row, for nimble and its peers.

all-MiniLM-L6-v2 meets a thousand shapes (batch × length), one after the other. Each system has two
processes, of which one runs at a time: the first only ever sees what comes, in its order. Behind
each block of visits the second runs the fixed shape of the control, then takes the steady medians
of the block's shapes: so visit, control and median lie within seconds of each other, and what the
machine does in between does not look like a slow shape.
"""

import argparse
import pathlib
import sys
import time

from experiments.churn import chart, visits
from experiments.harness import flags, report, systems
from experiments.harness import experiment as experiments
from experiments.harness.errors import USAGE, WRONG_RESULT, ExperimentError, exit_code

FORMAT = 1
BATCHES, LENGTHS, CONTROL = (1, 8), (1, 128), (2, 64)
FULL = {"visits": 1000, "runs": 5}
QUICK = {"visits": 200, "runs": 3}
BLOCK, WARM, START = 50, 2, 20  # visits between controls; calls that warm up; of a process
CHECKS = ((1, 1), (1, 2), (3, 37), (8, 128), (2, 64), (5, 13))
MOST_FIRST, MOST_SPREAD = 1.3, 1.3
FULL_MINUTES = 20  # of each system
EXPERIMENT = "minilm"


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="experiments/run churn", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs all-MiniLM-L6-v2 at random shapes in a row: latency, what the first "
                    "visit of a shape costs, peak memory.",
        epilog="The table goes to standard output, results to experiments/results/churn.json, .md,\n"
               ".svg and .png; a run that leaves something out writes churn-part.*, or\n"
               "churn-LABEL.* with --label.\n\n"
               "exit codes: 0 nimble keeps both bars, 3 a wrong result or not, 1 failure, 2 usage,\n"
               "130 interrupted")
    parser.add_argument("--peers", metavar="P[,P…]",
                        help=f"of {', '.join(systems.ONNX_PEERS)} (default: all; \"\": none)")
    parser.add_argument("--no-nimble", action="store_true", help="measure the peers alone")
    parser.add_argument("--visits", type=int, metavar="N",
                        help=f"shapes in a row (default {FULL['visits']})")
    parser.add_argument("--seed", type=int, default=1, help="of the shapes (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, metavar="N",
                        help="(default %(default)s)")
    parser.add_argument("--minutes", type=float, default=FULL_MINUTES, metavar="M",
                        help="that each system gets; it is reported for the shapes that it "
                             "reaches (default %(default)s)")
    flags.add_within(parser, "that all systems have together, like 15m: each an equal part, and no "
                             "more than --minutes")
    parser.add_argument("--quick", action="store_true",
                        help=f"{QUICK['visits']} shapes, {QUICK['runs']} runs for a median")
    parser.add_argument("--resume", action="store_true",
                        help="go on with an interrupted run of the same settings")
    flags.add_database(parser)
    flags.add_untuned(parser)
    parser.add_argument("--nimble-file", type=pathlib.Path, metavar="FILE",
                        help="run this compiled model instead of compiling")
    flags.add_label(parser, "churn")
    options = flags.parse(parser, arguments)
    if options.visits is not None and options.visits < BLOCK:
        parser.error(f"--visits: a block has {BLOCK}")
    return options


class Pair:
    """The two processes of a system."""

    def __init__(self, name, threads, cores, executable):
        from experiments.harness import models, pool
        experiment = experiments.load(EXPERIMENT)
        where = models.folder(experiment)
        options = {"onnx_model": str(where / "model.onnx"),
                   "onnxruntime_model": str(where / "onnxruntime.onnx"),
                   "nimble_file": executable, "server": "experiments.churn.worker"}
        self.workers = []
        try:
            for role in ("visits", "steady"):
                self.workers.append(pool.Worker(experiment, f"{name}-churn-{role}",
                                                systems.ALL[name].module, threads, cores, options))
        except BaseException:
            self.__exit__()
            raise
        self.visits, self.steady = self.workers

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for worker in self.workers:
            worker.close()


class Limit:
    """The time that a system has."""

    def __init__(self, minutes):
        self.end = time.monotonic() + 60 * minutes

    def left(self):
        return max(0.0, self.end - time.monotonic())

    def ask(self, worker, method, *arguments):
        """A request that stops by itself in time, but for the call in progress."""
        return worker.ask(method, *arguments, self.left(), seconds=self.left() + 900)


def measure(pair, shapes, runs, minutes, progress):
    """Returns one system's record: µs of each visit, steady medians, controls, memory."""
    limit = Limit(minutes)
    first_run = limit.ask(pair.visits, "visit", [CONTROL])
    limit.ask(pair.steady, "visit", [CONTROL])
    for worker in pair.workers:
        worker.confine()
        limit.ask(worker, "visit", START * [CONTROL])
    memory = {"warm": pair.visits.ask("memory", True)["held"]}
    times, steady, control, last = [], {}, [], CONTROL
    while len(times) < len(shapes) and limit.left() > 0:
        block = shapes[len(times):len(times) + BLOCK]
        limit.ask(pair.visits, "visit", WARM * [last])  # wakes its threads
        done = limit.ask(pair.visits, "visit", block)
        pair.visits.confine()
        fixed = limit.ask(pair.steady, "steady", [CONTROL], WARM + 1, len(block))
        new = [shape for shape in dict.fromkeys(block[:len(done)]) if shape not in steady]
        found = limit.ask(pair.steady, "steady", new, WARM, runs)
        pair.steady.confine()
        steady.update(zip(new, found))
        # Only what has a median counts: the time may end in between.
        reached = next((i for i, shape in enumerate(block[:len(done)]) if shape not in steady),
                       len(done))
        times += done[:reached]
        control += fixed[0] if fixed else []
        if reached < len(block):
            break
        last = block[-1]
        progress(len(times))
    memory |= pair.visits.ask("memory")
    return {"first_run_us": first_run[0] if first_run else None, "memory": memory,
            "times": times, "control": control,
            "steady": [[list(shape), values] for shape, values in steady.items()]}


def summarise(record, shapes):
    """Returns what the result says of a system; a line of text if it reached nothing."""
    import numpy as np
    reached = len(record["times"])
    if reached == 0 or not record["control"]:
        return "it reached no shape within its time"
    steady = {tuple(shape): float(np.median(values)) for shape, values in record["steady"]}
    summary = visits.summarise(shapes[:reached], record["times"], steady, record["control"])
    summary["first_run_us"] = record["first_run_us"]
    summary["memory"] = record["memory"]
    return summary


def check(reference, pair, name, tolerance):
    """Compares a few results with PyTorch's; raises with exit code 3 if they differ."""
    import numpy as np
    worst = 0.0
    for shape in CHECKS:
        expected, found = (w.ask("result", shape) for w in (reference, pair.steady))
        difference = float(np.max(np.abs(found - expected))) if found.shape == expected.shape \
            else np.inf
        if not difference <= tolerance:
            raise ExperimentError(f"{name} at shape {shape}: differs from PyTorch by "
                                  f"{difference:.2g}, allowed are {tolerance:g}; nothing was timed",
                                  WRONG_RESULT)
        worst = max(worst, difference)
    return worst


class Run:
    def __init__(self, options, arguments):
        from experiments.harness import machine, models
        self.options = options
        effort = QUICK if options.quick else FULL
        self.count, self.runs = options.visits or effort["visits"], effort["runs"]
        self.shapes = visits.draw_shapes(self.count, BATCHES, LENGTHS, CONTROL, options.seed)
        self.peers = (list(systems.ONNX_PEERS) if options.peers is None else
                      systems.parse_peers(options.peers, systems.ONNX_PEERS))
        self.names = ([] if options.no_nimble else ["nimble"]) + self.peers
        if not self.names:
            raise ExperimentError("--no-nimble without --peers leaves nothing to measure", USAGE)
        if options.within:
            part = flags.in_seconds(options.within) / 60 / len(self.names)
            options.minutes = min(options.minutes, round(part, 2))
        self.cores = machine.choose_cores(options.threads)
        if len(self.cores) < options.threads:
            raise ExperimentError(f"--threads {options.threads}: this process may use "
                                  f"{len(self.cores)} cores", USAGE)
        self.provenance = machine.provenance(["churn", *arguments])
        self.machine = machine.describe(self.cores)
        self.experiment = experiments.load(EXPERIMENT)
        models.export(self.experiment)
        self.executable = None
        if not options.no_nimble:
            self.executable = models.compile_nimble(self.experiment, options)["nimble"]
        part = (options.quick or options.visits or options.no_nimble or options.untuned
                or self.peers != list(systems.ONNX_PEERS)
                or (options.minutes < FULL_MINUTES and not options.within))
        self.stem = "churn" + (f"-{options.label}" if options.label else "-part" if part else "")
        self.partial = report.RESULTS / f"{self.stem}.partial.json"

    def settings(self):
        return {"visits": self.count, "runs": self.runs, "seed": self.options.seed,
                "threads": self.options.threads, "minutes": self.options.minutes,
                "untuned": self.options.untuned,
                "nimble_file": self.options.nimble_file and str(self.options.nimble_file),
                "cpu": self.machine["cpu"], "commit": self.provenance["commit"]}

    def load_partial(self):
        if not (self.options.resume and self.partial.exists()):
            return {}
        return report.read_partial(self.partial, self.settings())["records"]

    def execute(self):
        from experiments.studies import output
        records = self.load_partial()
        for name in self.names:
            if name in records:
                continue
            print(f"churn: {name}", file=sys.stderr)
            try:
                records[name] = self.measure(name)
            except ExperimentError as error:
                if name == "nimble" or error.code == WRONG_RESULT:
                    raise
                records[name] = {"error": str(error)}
                print(f"  {error}", file=sys.stderr)
            report.write_json(self.partial, {"settings": self.settings(), "records": records})
        result = self.assemble(records)
        code = output.finish(self.stem, result, chart)
        self.partial.unlink()
        return code

    def measure(self, name):
        """Returns a system's record, its results compared first."""
        with Pair("torch", self.options.threads, self.cores, None) as reference, \
                Pair(name, self.options.threads, self.cores, self.executable) as pair:
            info = pair.steady.ask("info")
            difference = check(reference.steady, pair, name, self.experiment.tolerance)
            start = time.monotonic()

            def progress(done):
                print(f"  [{done}/{self.count}] {time.monotonic() - start:.0f} s",
                      file=sys.stderr, flush=True)
            record = measure(pair, self.shapes, self.runs, self.options.minutes, progress)
            return {**record, **info, "difference": difference,
                    "seconds": time.monotonic() - start}

    def assemble(self, records):
        found, failed = {}, {}
        for name, record in records.items():
            summary = record["error"] if "error" in record else summarise(record, self.shapes)
            if isinstance(summary, str):
                failed[name] = summary
                continue
            found[name] = {"version": record["version"], "settings": record["settings"],
                           "seconds": record["seconds"], "difference": record["difference"],
                           **summary, "times_us": [round(t, 1) for t in record["times"]],
                           "steady_us": record["steady"]}
        bars = [] if self.options.no_nimble else \
            visits.judge(found.get("nimble"), MOST_FIRST, MOST_SPREAD)
        return {"format": FORMAT, "experiment": "churn", **self.provenance,
                "title": "all-MiniLM-L6-v2, f32, random shapes in a row",
                "machine": self.machine, "effort": self.settings(), "batches": BATCHES,
                "lengths": LENGTHS, "control": CONTROL, "untuned": self.options.untuned,
                "shapes": self.shapes, "systems": found, "failed": failed, "bars": bars}


def main(arguments):
    return exit_code(lambda: Run(parse_arguments(arguments), arguments).execute(),
                     "interrupted; --resume goes on from here")
