"""The program behind `experiments/run`: arguments, the order of the work, the result file."""

import argparse
import hashlib
import json
import os
import pathlib
import sys
import time

from experiments.harness import experiment as experiments
from experiments.harness import systems
from experiments.harness.errors import USAGE, ExperimentError, exit_code

FORMAT = 1  # of the result file
FULL = {"rounds": 9, "burst_us": 30_000}
QUICK = {"rounds": 5, "burst_us": 15_000}
QUICK_LENGTHS = 6


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="experiments/run", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compares nimble with its peers on one model, in one interleaved run.",
        epilog="The table goes to standard output, progress to standard error. Results go to\n"
               "experiments/results/NAME.json, .svg and .png; a run that leaves something out\n"
               "(--quick, --lengths, --threads, --peers, --no-nimble, --untuned) writes\n"
               "NAME-part.* instead, or NAME-LABEL.* with --label.\n\n"
               "exit codes: 0 done, 1 failure, 2 usage, 3 wrong result, 130 interrupted")
    parser.add_argument("name", metavar="NAME", choices=experiments.NAMES,
                        help=f"experiment: {', '.join(experiments.NAMES)}; or one that compares no "
                             f"speeds and has its own --help: {', '.join(experiments.PROGRAMS)}")
    parser.add_argument("--setup", action="store_true",
                        help="only make the virtual environment (alone on the command line)")
    parser.add_argument("--threads", metavar="N[,N…]", help="thread counts, one case each")
    parser.add_argument("--lengths", metavar="L[,L…]",
                        help="numbers and ranges like 19,53,60-64, or all (default: all)")
    parser.add_argument("--repetitions", type=int, metavar="N",
                        help=f"interleaved rounds at each length (default {FULL['rounds']})")
    parser.add_argument("--peers", metavar="P[,P…]",
                        help=f"of {', '.join(systems.PEERS)} (default: all of the experiment)")
    parser.add_argument("--no-nimble", action="store_true", help="measure the peers alone")
    parser.add_argument("--quick", action="store_true",
                        help=f"{QUICK_LENGTHS} lengths, {QUICK['rounds']} short rounds")
    parser.add_argument("--resume", action="store_true",
                        help="go on with an interrupted run of the same settings")
    parser.add_argument("--database", type=pathlib.Path, metavar="FILE",
                        default=experiments.BUILD / "tuning.db",
                        help="tuning database to compile with (default %(default)s)")
    parser.add_argument("--untuned", action="store_true",
                        help="compile without a database: default schedules")
    parser.add_argument("--nimble-file", type=pathlib.Path, metavar="FILE",
                        help="run this compiled model instead of compiling")
    parser.add_argument("--label", metavar="TEXT", help="write NAME-TEXT.*")
    options = parser.parse_args(arguments)
    if options.repetitions is not None and options.repetitions < 3:
        parser.error("--repetitions: an interval needs 3 or more")
    if options.label is not None and not options.label.replace("-", "").isalnum():
        parser.error("--label: letters, digits and hyphens only")
    return options


def parse_threads(text, available):
    counts = [int(part) if part.isdigit() else 0 for part in text.split(",")]
    if min(counts) < 1 or max(counts) > available:
        raise ExperimentError(f"--threads {text}: this process may use 1 to {available} cores",
                              USAGE)
    return counts


def count_threads(number):
    return f"{number} thread" if number == 1 else f"{number} threads"


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Progress:
    """One line on standard error: rewritten on a terminal, one per length elsewhere."""

    def __init__(self, total, already):
        self.total, self.done, self.first = total, already, already
        self.start = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def step(self, text):
        self.done += 1
        seconds = (time.monotonic() - self.start) / (self.done - self.first)
        left = int(seconds * (self.total - self.done))
        line = f"[{self.done}/{self.total}] {text}, {left // 60}:{left % 60:02d} left"
        end = "\n" if not self.terminal or self.done == self.total else ""
        print(("\r\x1b[K" if self.terminal else "") + line, end=end, file=sys.stderr, flush=True)


class Run:
    """One call of the program."""

    def __init__(self, arguments):
        from experiments.harness import machine, report, workload
        self.options = parse_arguments(arguments)
        self.experiment = experiments.load(self.options.name)
        available = len(os.sched_getaffinity(0))
        self.threads = (parse_threads(self.options.threads, available) if self.options.threads
                        else [n for n in self.experiment.threads if n <= available])
        self.counts = self.experiment.histogram()
        if self.options.lengths:
            self.lengths = workload.parse(self.options.lengths, self.counts,
                                          self.experiment.any_length)
        elif self.options.quick:
            self.lengths = workload.quantile_lengths(self.counts, QUICK_LENGTHS)
        else:
            self.lengths = list(self.counts)
        self.weights = workload.weights(self.counts, self.lengths)
        self.peers = (list(self.experiment.peers) if self.options.peers is None else
                      systems.parse_peers(self.options.peers, self.experiment.peers))
        if not self.peers and self.options.no_nimble:
            raise ExperimentError("--no-nimble without --peers leaves nothing to measure", USAGE)
        self.effort = dict(QUICK if self.options.quick else FULL)
        if self.options.repetitions:
            self.effort["rounds"] = self.options.repetitions
        self.provenance = machine.provenance(arguments)
        self.machine = machine.describe(machine.choose_cores(max(self.threads)))
        self.stem = report.RESULTS / self.result_name()
        self.partial = self.stem.with_name(self.stem.name + ".partial.json")
        self.infos = {}

    def result_name(self):
        options, name = self.options, self.experiment.name
        if options.label:
            return f"{name}-{options.label}"
        part = (options.quick or options.lengths or options.threads or options.no_nimble
                or options.untuned or self.peers != list(self.experiment.peers))
        return f"{name}-part" if part else name

    def execute(self):
        from experiments.harness import models, report
        models.export(self.experiment)
        self.experiment.prepare(self.peers)
        self.executables = ({} if self.options.no_nimble
                            else models.compile_nimble(self.experiment, self.options))
        done = self.load_partial()
        if self.machine["load_before"] > 0.5:
            print(f"{self.experiment.name}: load is {self.machine['load_before']:.1f} before the "
                  "start; other programs will disturb the figures", file=sys.stderr)
        progress = Progress(len(self.threads) * len(self.lengths), len(done))
        for threads in self.threads:
            if any(f"{threads}:{length}" not in done for length in self.lengths):
                self.measure_case(threads, done, progress)
        result = self.assemble(done)
        report.write_json(self.stem.with_name(self.stem.name + ".json"), result)
        report.plot(result, self.stem)
        self.partial.unlink(missing_ok=True)
        print("\n\n".join(report.table(case) for case in result["cases"]))
        print(f"wrote {self.stem}.json, .svg and .png", file=sys.stderr)

    def measure_case(self, threads, done, progress):
        """Measures the lengths of one thread count that are not in `done`, and adds them."""
        from experiments.harness import machine, measure, pool, report
        from experiments.harness import statistics as stats
        cores = machine.choose_cores(threads)
        with pool.Pool() as workers:
            for name in [*self.peers, *self.executables]:
                self.start(workers, name, threads, cores)
            self.infos.update({name: worker.ask("info")
                               for name, worker in workers.workers.items()})
            reference = self.peers[0] if self.peers else self.experiment.nimble
            for length in self.lengths:
                key = f"{threads}:{length}"
                if key in done:
                    continue
                differences = measure.check(workers.workers, reference, self.experiment.tolerance,
                                            length)
                rounds = measure.time_rounds(workers.workers, length, **self.effort,
                                             long_runs=self.experiment.long_runs)
                inputs = self.experiment.inputs_per_run(length)
                rounds = {name: [us / inputs for us in times] for name, times in rounds.items()}
                found, comparison = stats.summarize(
                    rounds, self.peers,
                    None if self.options.no_nimble else self.experiment.nimble)
                for name, value in found.items():
                    value["difference"] = differences[name]
                done[key] = {"length": length, "count": self.weights[length], "systems": found,
                             **comparison}
                report.write_json(self.partial, {"settings": self.settings(), "done": done,
                                                 "infos": self.infos})
                best = min(found, key=lambda name: found[name]["median"])
                ratio = f", ratio {comparison['ratio']:.2f}" if comparison["ratio"] else ""
                progress.step(
                    f"{count_threads(threads)}, length {length}: fastest {best}{ratio}")

    def start(self, workers, name, threads, cores):
        from experiments.harness import models
        where = models.folder(self.experiment)
        print(f"{self.experiment.name}: starting {name} on {count_threads(threads)}",
              file=sys.stderr)
        workers.start(name, self.experiment, name, systems.ALL[name].module, threads, cores, {
            "onnx_model": str(where / "model.onnx"),
            "onnxruntime_model": str(where / "onnxruntime.onnx"),
            "nimble_file": self.executables.get(name),
        })

    def settings(self):
        """What must be equal for an interrupted run to go on."""
        return {"format": FORMAT, "experiment": self.experiment.name, "threads": self.threads,
                "lengths": self.lengths, "systems": [*self.peers, *self.executables],
                "commit": self.provenance["commit"],
                "executables": {name: digest(path) for name, path in self.executables.items()},
                "cpu": self.machine["cpu"], **self.effort}

    def load_partial(self):
        if not self.options.resume:
            return {}
        if not self.partial.exists():
            print(f"{self.partial}: nothing to resume, starting afresh", file=sys.stderr)
            return {}
        try:
            saved = json.loads(self.partial.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ExperimentError(
                f"{self.partial}: not JSON ({error}); run without --resume") from None
        changed = [key for key, value in self.settings().items()
                   if saved.get("settings", {}).get(key) != value]
        if changed:
            raise ExperimentError(f"{self.partial}: made with other settings "
                                  f"({', '.join(changed)}); run without --resume")
        self.infos = saved["infos"]
        return saved["done"]

    def assemble(self, done):
        """Returns the result file's content."""
        from experiments.harness import statistics as stats
        cases = []
        for threads in self.threads:
            entries = [done[f"{threads}:{length}"] for length in self.lengths]
            case = {"name": f"{self.experiment.name}, {count_threads(threads)}",
                    "threads": threads, "lengths": entries, "ratio_to_best_peer": None}
            rated = [entry for entry in entries if entry["ratio"] is not None]
            # Lengths that never occur (asked for by --lengths) weigh nothing, unless all do.
            counts = [entry["count"] for entry in rated]
            if rated and not any(counts):
                counts = [1] * len(rated)
            if rated:
                case["ratio_to_best_peer"] = stats.geometric_mean(
                    [entry["ratio"] for entry in rated], counts)
                case["ratio_to"] = {peer: stats.geometric_mean(
                    [entry["ratio_to"][peer] for entry in rated], counts) for peer in self.peers}
                case["lowest_ratio"] = min(entry["ratio"] for entry in rated)
                case["share_of_lengths_at_least_1"] = (
                    sum(entry["ratio"] >= 1 for entry in rated) / len(rated))
            cases.append(case)
        ratios = [case["ratio_to_best_peer"] for case in cases
                  if case["ratio_to_best_peer"] is not None]
        return {
            "format": FORMAT, "experiment": self.experiment.name, "title": self.experiment.title,
            "unit": "µs per run", **self.provenance, "machine": self.machine,
            "effort": self.effort, "tolerance": self.experiment.tolerance,
            "untuned": self.options.untuned,
            "executables": {name: digest(path) for name, path in self.executables.items()},
            "systems": self.infos, "cases": cases,
            # Over all cases; each case has its own beside its lengths.
            "ratio_to_best_peer": stats.geometric_mean(ratios, [1] * len(ratios)),
        }


def main():
    if len(sys.argv) > 1 and sys.argv[1] in experiments.PROGRAMS:
        return experiments.load_program(sys.argv[1])(sys.argv[2:])
    return exit_code(lambda: Run(sys.argv[1:]).execute(), "interrupted; --resume goes on from here")


if __name__ == "__main__":
    sys.exit(main())
