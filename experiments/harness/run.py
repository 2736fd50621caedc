"""One run of an experiment that compares speeds: the order of the work and the result file."""

import hashlib
import os
import sys
import time

from experiments.harness import cli, environments, flags, machine, measure, models, pool, report
from experiments.harness import experiment as experiments
from experiments.harness import statistics as stats
from experiments.harness import systems, workload
from experiments.harness.errors import USAGE, ExperimentError

FORMAT = 1  # of the result file; what reads it looks for keys, so new ones keep the number
# A peer that has run for so long in one case goes on no more: it is reported for the lengths that
# it reached. Lengths are visited from the middle outwards, so that these are typical ones.
PEER_SECONDS, QUICK_PEER_SECONDS = 600, 60
# With --within, a peer has at most this part of its case's time, and each case this many lengths,
# with all its peers, even where those before it took all of the time.
PEER_SHARE, FEWEST_LENGTHS = 1 / 3, 5
LONGEST_REASON = 240  # characters of an error that go into the result
TIMED = ("one call on inputs that are bound outside the clock, for every system, until its outputs "
         "can be read")


def count_threads(number):
    return f"{number} thread" if number == 1 else f"{number} threads"


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def reason(error):
    """Returns an error's message without the system and the path of its log."""
    message = str(error).partition("; see ")[0]
    if error.system:
        message = message.removeprefix(f"{error.system}: ")
    return message if len(message) <= LONGEST_REASON else message[:LONGEST_REASON - 1] + "…"


def from_the_middle(lengths):
    """Returns the lengths in an order in which each prefix covers their range evenly: the middle
    one, then those of the halves, and so on."""
    ordered, parts = [], [sorted(lengths)]
    while parts:
        below = []
        for part in parts:
            middle = len(part) // 2
            ordered.append(part[middle])
            below += [half for half in (part[:middle], part[middle + 1:]) if half]
        parts = below
    return ordered


class Share:
    """The part of --within that one case has; without a limit it never ends."""

    def __init__(self, seconds, clock=time.monotonic):
        self.seconds, self.clock, self.start = seconds, clock, clock()

    def is_over(self, lengths):
        """Whether no further length is begun, once so many are done."""
        return (self.seconds is not None and lengths >= FEWEST_LENGTHS
                and self.clock() - self.start >= self.seconds)

    def of_a_peer(self, most, lengths):
        """Returns the seconds after which a peer is stopped, once so many lengths are done."""
        if self.seconds is None or lengths < FEWEST_LENGTHS:
            return most
        return min(most, PEER_SHARE * self.seconds)


class Progress:
    """One line on standard error: rewritten on a terminal, one per length elsewhere."""

    def __init__(self, total, already):
        self.total, self.done, self.first = total, already, already
        self.start = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def leave_out(self, number):
        """Counts no more what the time did not suffice for."""
        self.total -= number

    def step(self, text):
        self.done += 1
        seconds = (time.monotonic() - self.start) / (self.done - self.first)
        left = int(seconds * (self.total - self.done))
        line = f"[{self.done}/{self.total}] {text}, {left // 60}:{left % 60:02d} left"
        end = "\n" if not self.terminal or self.done == self.total else ""
        print(("\r\x1b[K" if self.terminal else "") + line, end=end, file=sys.stderr, flush=True)


class Case:
    """One model of the experiment on one number of threads, and what is known of it so far."""

    def __init__(self, experiment, threads, peers):
        self.experiment, self.threads, self.peers = experiment, threads, peers
        self.key = f"{experiment.name}:{threads}"
        model = experiment.case or experiment.name
        self.name = f"{model}, {count_threads(threads)}"
        self.done, self.errors, self.infos = {}, {}, {}
        self.study = {}  # what is found of the case beside its lengths
        self.ended = False

    def running(self):
        return [peer for peer in self.peers if peer not in self.errors]

    def saved(self):
        return {"done": self.done, "errors": self.errors, "infos": self.infos,
                "study": self.study, "ended": self.ended}


class Run:
    """One call of the program."""

    def __init__(self, arguments):
        self.options = options = cli.parse_arguments(arguments)
        self.experiment = experiments.load(options.name)
        available = len(os.sched_getaffinity(0))
        self.threads = (cli.parse_threads(options.threads, available) if options.threads
                        else [n for n in self.experiment.threads if n <= available])
        self.counts = self.experiment.histogram()
        if options.lengths:
            self.lengths = workload.parse(options.lengths, self.counts, self.experiment.any_length)
        elif options.quick:
            self.lengths = workload.quantile_lengths(self.counts, cli.QUICK_LENGTHS)
        else:
            self.lengths = list(self.counts)
        self.weights = workload.weights(self.counts, self.lengths)
        self.models = self.choose_models()
        possible = [peer for model in self.models for peer in model.peers]
        possible = list(dict.fromkeys(possible))
        self.peers = (possible if options.peers is None
                      else self.choose_peers(options.peers, possible))
        if not self.peers and options.no_nimble:
            raise ExperimentError("--no-nimble without --peers leaves nothing to measure", USAGE)
        self.cases = [Case(model, threads, [peer for peer in model.peers if peer in self.peers])
                      for model in self.models for threads in self.threads]
        self.effort = dict(cli.QUICK if options.quick else cli.FULL)
        if options.repetitions:
            self.effort["rounds"] = options.repetitions
        self.peer_seconds = QUICK_PEER_SECONDS if options.quick else PEER_SECONDS
        self.measured_seconds = 0.0
        self.provenance = machine.provenance(arguments)
        self.machine = machine.describe(machine.choose_cores(max(self.threads)))
        self.stem = report.RESULTS / self.result_name(possible)
        self.partial = self.stem.with_name(self.stem.name + ".partial.json")

    def choose_models(self):
        found = [self.experiment, *self.experiment.variants]
        if self.options.nimble_file is not None:
            return found[:1]
        if not self.options.cases:
            return found
        names = {model.name.partition("/")[2] or model.name: model for model in found}
        wanted = self.options.cases.split(",")
        if not set(wanted) <= set(names):
            raise ExperimentError(f"--cases {self.options.cases}: there are {', '.join(names)}",
                                  USAGE)
        return [model for name, model in names.items() if name in wanted]

    def choose_peers(self, text, possible):
        return systems.parse_peers(text, possible)

    def result_name(self, possible):
        options, name = self.options, self.experiment.name
        if options.label:
            return f"{name}-{options.label}"
        part = (options.quick or options.lengths or options.threads or options.cases
                or options.no_nimble or options.untuned or self.peers != possible)
        return f"{name}-part" if part else name

    def build(self):
        """Exports, tunes and compiles what is measured. With nothing to resume all of it is made
        anew: what an earlier run left is of another commit, or was interrupted while it tuned."""
        if self.options.resume and not self.partial.exists():
            print(f"{self.partial}: nothing to resume, starting afresh", file=sys.stderr)
            self.options.resume = False
        self.executables = {}
        for model in self.models:
            models.export(model)
            if not self.options.no_nimble:
                self.executables[model.name] = self.build_model(model)

    def build_model(self, model, only=None):
        """Tunes and compiles a model, all of its systems or one; returns {system: executable}."""
        if self.options.tune and not self.options.resume:
            models.tune(model, self.options, only)
        return models.compile_nimble(model, self.options, only)

    def execute(self):
        """Does all of it; returns the exit code."""
        self.build()
        self.unprepared = self.prepare()
        self.load_partial()
        if self.machine["load_before"] > 0.5:
            print(f"{self.experiment.name}: load is {self.machine['load_before']:.1f} before the "
                  "start; other programs will disturb the figures", file=sys.stderr)
        progress = Progress(len(self.cases) * len(self.lengths),
                            sum(len(case.done) for case in self.cases))
        for case in self.cases:
            if not case.ended:
                self.measure_case(case, progress)
        result = self.assemble()
        self.write(result)
        self.partial.unlink(missing_ok=True)
        print(f"wrote {self.stem}.json, .md, .svg and .png", file=sys.stderr)
        return self.verdict(result)

    def write(self, result):
        report.write_all(result, self.stem)
        print("\n\n".join(report.table(case) for case in result["cases"]))

    def verdict(self, result):
        """Returns the exit code for what was found."""
        return 0

    def prepare(self):
        """Makes what the peers need before they start; returns {peer: error} of the others."""
        errors = {}
        for peer in self.peers:
            try:
                environments.make(systems.ALL[peer].environment)
                self.experiment.prepare([peer])
            except (environments.SetupError, ExperimentError) as error:
                print(f"{self.experiment.name}: going on without {peer}: {error}", file=sys.stderr)
                errors[peer] = str(error)
        return errors

    def measure_case(self, case, progress):
        """Measures the lengths of a case that it lacks. A peer that fails is dropped from there on
        and its error noted; only the reference and nimble must not fail."""
        for peer in case.running():
            if peer in self.unprepared:
                case.errors[peer] = self.unprepared[peer]
        cores = machine.choose_cores(case.threads)
        executables = self.executables.get(case.experiment.name, {})
        reference = case.peers[0] if case.peers else case.experiment.nimble

        def give_up(system, error):
            if not self.may_fail(case, system):
                raise error
            print(f"{case.name}: going on without {system}: {error}", file=sys.stderr)
            case.errors[system] = reason(error)
            if system in workers.workers:
                workers.drop(system)

        with pool.Pool() as workers:
            for name in [*case.running(), *(n for n in executables if n not in case.errors)]:
                try:
                    self.start(workers, name, case, cores, executables.get(name))
                    case.infos[name] = workers.workers[name].ask("info")
                except ExperimentError as error:
                    give_up(name, error)
            self.examine_case(case, workers, give_up)
            share, before = self.share(), self.measured_seconds
            order = from_the_middle(self.lengths)
            if share.seconds is not None:  # the ends must not be what the time does not suffice for
                order = list(dict.fromkeys([order[0], min(order), max(order), *order]))
            for length in order:
                if str(length) in case.done:
                    continue
                if share.is_over(len(case.done)):
                    break
                case.done[str(length)] = self.measure_length(case, workers, reference, length,
                                                             give_up)
                self.drop_slow(case, workers, share.of_a_peer(self.peer_seconds, len(case.done)))
                # Whoever goes on from here has no more time than is left.
                self.measured_seconds = before + share.clock() - share.start
                self.save()
                entry = case.done[str(length)]
                found = entry["systems"]
                best = min(found, key=lambda name: found[name]["median"])
                ratio = f", ratio {entry['ratio']:.2f}" if entry["ratio"] else ""
                progress.step(f"{case.name}, length {length}: fastest {best}{ratio}")
        case.ended = True
        progress.leave_out(len(self.lengths) - len(case.done))
        self.save()

    def may_fail(self, case, system):
        """Whether the run goes on without a system."""
        return system in case.peers[1:]

    def examine_case(self, case, workers, give_up):
        """Finds what `case.study` is to hold, before the lengths; a run that goes on has it."""

    def share(self):
        """Returns the time of the next case: what is left, evenly over the cases that wait."""
        if not self.options.within:
            return Share(None)
        left = flags.in_seconds(self.options.within) - self.measured_seconds
        return Share(max(0.0, left) / sum(not case.ended for case in self.cases))

    def save(self):
        report.write_json(self.partial, {
            "settings": self.settings(), "measured_seconds": self.measured_seconds,
            "cases": {case.key: case.saved() for case in self.cases}})

    def measure_length(self, case, workers, reference, length, give_up):
        figures, errors = self.examine(case, workers.workers, reference, length)
        for system, error in errors.items():
            give_up(system, error)
        while True:
            try:
                timed = {name: worker for name, worker in workers.workers.items()
                         if name not in case.experiment.untimed}
                rounds = measure.time_rounds(timed, length, **self.effort,
                                             long_runs=case.experiment.long_runs)
                break
            except ExperimentError as error:
                give_up(error.system, error)
        inputs = case.experiment.inputs_per_run(length)
        rounds = {name: [us / inputs for us in times] for name, times in rounds.items()}
        nimble = case.experiment.nimble
        found, comparison = stats.summarize(
            rounds, [peer for peer in case.peers if peer in rounds],
            nimble if nimble in rounds else None, case.experiment.rivals)
        for name, value in found.items():
            value.update(figures[name])
        return {"length": length, "count": self.weights[length], "systems": found, **comparison}

    def examine(self, case, workers, reference, length):
        """Runs every system once, before it is timed; returns ({system: its errors' figures},
        {system: ExperimentError of a wrong result, or of none})."""
        differences, errors = measure.examine(workers, reference, case.experiment.tolerance,
                                              length)
        return {name: {"difference": value} for name, value in differences.items()}, errors

    def drop_slow(self, case, workers, most):
        missing = len(self.lengths) - len(case.done)
        for system in set(case.running()) & set(workers.workers):
            if not self.may_fail(case, system):
                continue
            if missing and workers.workers[system].seconds > most:
                reached = sum(system in entry["systems"] for entry in case.done.values())
                case.errors[system] = (f"stopped after {most:.0f} s, with {reached} of "
                                       f"{len(self.lengths)} lengths")
                print(f"{case.name}: {system} {case.errors[system]}", file=sys.stderr)
                workers.drop(system)

    def start(self, workers, name, case, cores, executable):
        where = models.folder(case.experiment)
        print(f"{case.name}: starting {name}", file=sys.stderr)
        row = systems.ALL[name]
        workers.start(name, case.experiment, name, row.module, case.threads, cores, {
            "onnx_model": str(where / "model.onnx"),
            "onnxruntime_model": str(where / "onnxruntime.onnx"),
            "nimble_file": executable,
            "tvm_seconds": self.options.tvm_seconds,
            "server": case.experiment.server,
        }, row.environment)
        # What it takes to load, build or tune is not held against it.
        workers.workers[name].seconds = 0.0

    def digests(self):
        return {name if model == self.experiment.name else f"{model}:{name}": digest(path)
                for model, found in self.executables.items() for name, path in found.items()}

    def settings(self):
        """What must be equal for an interrupted run to go on."""
        return {"format": FORMAT, "experiment": self.experiment.name,
                "cases": [case.key for case in self.cases], "lengths": self.lengths,
                "systems": [case.peers for case in self.cases],
                "commit": self.provenance["commit"], "executables": self.digests(),
                "cpu": self.machine["cpu"], **self.stated_effort()}

    def load_partial(self):
        if not self.options.resume:
            return
        saved = report.read_partial(self.partial, self.settings())
        for case in self.cases:
            kept = saved["cases"][case.key]
            case.done, case.errors, case.infos = kept["done"], kept["errors"], kept["infos"]
            case.ended, case.study = kept["ended"], kept["study"]
        self.measured_seconds = saved["measured_seconds"]

    def stated_effort(self):
        within = self.options.within
        return {**self.effort, **({"within": within} if within else {})}

    def entries(self, case):
        """Returns what was found at the lengths of a case. With --within they may be some of
        those that were to be measured, and stand for the others."""
        reached = [length for length in self.lengths if str(length) in case.done]
        if len(reached) == len(self.lengths):
            return [case.done[str(length)] for length in reached]
        counts = workload.weights(self.counts, reached)
        return [{**case.done[str(length)], "count": counts[length]} for length in reached]

    def assemble(self):
        """Returns the result file's content."""
        cases = [summarize_case(case.name, case.threads, case.peers, self.entries(case),
                                case.errors) for case in self.cases]
        ratios = [case["ratio_to_best_peer"] for case in cases
                  if case["ratio_to_best_peer"] is not None]
        tuning = self.experiment.tuning_histogram
        return {
            "format": FORMAT, "experiment": self.experiment.name, "title": self.experiment.title,
            "unit": "µs per run", "timed": TIMED, **self.provenance, "machine": self.machine,
            "effort": self.stated_effort(), "lengths_of_workload": len(self.lengths),
            "tolerance": self.experiment.tolerance,
            "untuned": self.options.untuned, "tuning_budget": self.options.tune,
            "tuned_for_lengths": (sorted(tuning()) if tuning and self.executables
                                  and not self.options.untuned else None),
            "executables": self.digests(),
            "systems": merge_infos([case.infos for case in self.cases]),
            "cases": cases,
            # Over all cases; each case has its own beside its lengths.
            "ratio_to_best_peer": stats.geometric_mean(ratios, [1] * len(ratios)),
        }


def merge_infos(infos):
    """Returns {system: {"version", "settings"}} of all cases; settings that differ between them
    stand one after the other."""
    merged = {}
    for name in dict.fromkeys(name for found in infos for name in found):
        own = [found[name] for found in infos if name in found]
        merged[name] = {key: "; or ".join(dict.fromkeys(info[key] for info in own))
                        for key in own[0]}
    return merged


def summarize_case(name, threads, peers, entries, errors):
    """Returns a case of the result file from its lengths' entries."""
    case = {"name": name, "threads": threads, "lengths": entries, "errors": errors,
            "us_per_token": {}, "ratio_to_best_peer": None}
    # Lengths that never occur (asked for by --lengths) weigh nothing, unless all do.
    even = not any(entry["count"] for entry in entries)

    def count(entry):
        return 1 if even else entry["count"]
    for system in dict.fromkeys(one for entry in entries for one in entry["systems"]):
        reached = [entry for entry in entries if system in entry["systems"]]
        tokens = sum(count(entry) * entry["length"] for entry in reached)
        if tokens:
            case["us_per_token"][system] = sum(
                count(entry) * entry["systems"][system]["median"] for entry in reached) / tokens
    rated = [entry for entry in entries if entry["ratio"] is not None]
    if rated:
        counts = [count(entry) for entry in rated]
        case["ratio_to_best_peer"] = stats.geometric_mean([entry["ratio"] for entry in rated],
                                                          counts)
        case["ratio_to"] = {}
        for peer in peers:
            reached = [entry for entry in rated if peer in entry["ratio_to"]]
            ratio = stats.geometric_mean([entry["ratio_to"][peer] for entry in reached],
                                         [count(entry) for entry in reached])
            if ratio is not None:
                case["ratio_to"][peer] = ratio
        case["lowest_ratio"] = min(entry["ratio"] for entry in rated)
        case["share_of_lengths_at_least_1"] = (
            sum(entry["ratio"] >= 1 for entry in rated) / len(rated))
    return case
