"""`experiments/run images`: image networks at 224 × 224 and over random sizes, against peers.

A network after the other is exported, tuned on sizes that are not measured, compiled by the tables
and by default schedules, and measured with all peers interleaved, in an even part of the run's time
(pace.py). experiments/images_precision measures the same networks in narrower types by a Run of its
own, made of this one.
"""

import sys
import types

from experiments.harness import flags, measure, pool, report, systems
from experiments.harness.errors import USAGE, ExperimentError, exit_code
from experiments.harness.run import digest, merge_infos, reason
from experiments.images import building, kernels, networks, tables
from experiments.images.arguments import TOTAL, parse
from experiments.images.building import FOLDER
from experiments.images.networks import NETWORKS, OWN
from experiments.images.pace import Pace

FORMAT = 1
# The ratio at OWN stands alone and has more rounds; of the other sizes rather more than rounds.
FULL = {"rounds": 3, "own_rounds": 9, "burst_us": 30_000, "peak_s": 0.2, "compile_s": 400}
QUICK = {"rounds": 3, "own_rounds": 3, "burst_us": 15_000, "peak_s": 0.05, "compile_s": 240}
TOLERANCE = 1e-4
PROFILE_US, FEWEST_PROFILED, MOST_PROFILED = 200_000, 3, 30
REFERENCE = networks.SINGLE
WINOGRAD_TOLERANCE = 1e-2  # a mistake is larger; what is smaller is told


def parse_arguments(arguments):
    return parse(Run, "network", "Compares nimble with its peers on image networks with drawn "
                                 "weights", arguments)


def plan_sizes(name, count):
    """Returns the sizes at which a network is measured, OWN first."""
    return [OWN, *(networks.measured_sizes(count) if NETWORKS[name].any_size else ())]


class Measured:
    """What is known of a network so far; `record` is all that is kept of it."""

    def __init__(self, name, record=None):
        self.name = self.network = name
        self.record = record or {"executables": {}, "tuning": None, "flops": None, "done": {},
                                 "errors": {}, "infos": {}, "calls": [], "failure": None,
                                 "ended": False}

    def files(self):
        """Returns the executables of an interrupted run, if they are still those."""
        kept = {system: FOLDER / file for system, (file, _) in self.record["executables"].items()}
        digests = [found for _, found in self.record["executables"].values()]
        same = all(path.exists() and digest(path) == found
                   for path, found in zip(kept.values(), digests))
        return kept if kept and same else None


class Run:
    """One call of the program. What another experiment on the same networks has otherwise is an
    attribute or a method of a class made of this one."""

    NAME, SIZES, QUICK_SIZES = "images", 100, 4
    NAMES, PEERS = tuple(NETWORKS), systems.IMAGE_PEERS
    QUICK_NAMES = "mobilenet-v2,squeezenet"
    REFERENCES = (REFERENCE,)  # whose results the others' are compared with; they aren't timed
    WINOGRAD = tuple(tables.WINOGRAD)  # systems that --winograd adds; empty: there is no such option
    winograd = ()                      # those of this run

    def __init__(self, options, arguments):
        from experiments.harness import machine
        self.options = options
        self.effort = dict(QUICK if options.quick else FULL)
        self.count = options.sizes if options.sizes is not None else (
            self.QUICK_SIZES if options.quick else self.SIZES)
        self.peers = (list(self.PEERS) if options.peers is None else
                      systems.parse_peers(options.peers, self.PEERS))
        if not self.peers:
            raise ExperimentError("--peers: one or more", USAGE)
        self.cores = machine.choose_cores(options.threads)
        if not 1 <= options.threads <= len(self.cores):
            raise ExperimentError(f"--threads {options.threads}: this process may use "
                                  f"{len(self.cores)} cores", USAGE)
        if options.winograd:
            self.winograd = self.WINOGRAD
            self.REFERENCES = (REFERENCE, networks.EXACT)
        self.networks = [self.make_measured(name) for name in options.names]
        self.peaks, self.spent, self.measured_seconds = [], 0.0, 0.0
        self.provenance = machine.provenance([self.NAME, *arguments])
        self.machine = machine.describe(self.cores)
        part = (options.quick or options.untuned or self.count != self.SIZES
                or options.threads != 2 or options.names != list(self.NAMES)
                or self.peers != list(self.PEERS)
                or flags.in_seconds(options.total) < flags.in_seconds(TOTAL))
        self.stem = (self.NAME + ("-winograd" if self.winograd else "")
                     + (f"-{options.label}" if options.label else "-part" if part else ""))
        self.partial = report.RESULTS / f"{self.stem}.partial.json"

    def make_measured(self, name, record=None):
        return Measured(name, record)

    def settings(self):
        """What must be equal for an interrupted run to go on."""
        options = self.options
        return {"networks": options.names, "sizes": self.count, "threads": options.threads,
                "peers": self.peers, "untuned": options.untuned, "tune": options.tune,
                "total": options.total, "within": options.within,
                "winograd": list(self.winograd), **self.effort,
                "cpu": self.machine["cpu"], "commit": self.provenance["commit"]}

    def load_partial(self):
        if not self.options.resume:
            return
        if not self.partial.exists():
            print(f"{self.partial}: nothing to resume, starting afresh", file=sys.stderr)
            return
        saved = report.read_partial(self.partial, self.settings())
        self.networks = [self.make_measured(name, saved["networks"].get(name))
                         for name in self.options.names]
        self.peaks, self.spent = saved["peaks"], saved["spent"]
        self.measured_seconds = saved["measured_seconds"]

    def save(self):
        report.write_json(self.partial, {
            "settings": self.settings(), "peaks": self.peaks, "spent": self.pace.spent(),
            "measured_seconds": self.pace.measured,
            "networks": {network.name: network.record for network in self.networks}})

    def make_pace(self):
        within = self.options.within
        waiting = sum(not network.record["ended"] for network in self.networks)
        return Pace(flags.in_seconds(self.options.total), waiting, self.spent,
                    flags.in_seconds(within) if within else None, self.measured_seconds)

    def tell(self, network, text):
        print(f"{self.NAME}: [{self.networks.index(network) + 1}/{len(self.networks)}] "
              f"{network.name}: {text}", file=sys.stderr, flush=True)

    def execute(self):
        from experiments.studies import programs
        programs.need("nimble-compile", "nimble-doctor", "nimble-inspect",
                      *([] if self.options.untuned else ["nimble-tune"]))
        self.load_partial()
        self.pace = self.make_pace()
        for network in self.networks:
            if network.record["ended"]:
                continue
            self.pace.begin()
            self.tell(network, f"{self.pace.share:.0f} s, {self.pace.left_text()} of all")
            try:
                self.measure_network(network, plan_sizes(network.network, self.count))
            except ExperimentError as error:
                self.tell(network, f"{error}; going on")
                network.record["failure"] = reason(error)
            network.record["ended"] = True
            self.pace.ended()
            self.save()
        self.measure_peak()
        result = self.assemble()
        code = self.finish(result)
        self.partial.unlink(missing_ok=True)
        return code

    def finish(self, result):
        from experiments.studies import output
        return output.finish(self.stem, result, tables)

    def measure_peak(self):
        from experiments.studies import programs
        self.peaks.append(programs.measure_peaks(self.NAME, [self.options.threads],
                                                 self.effort["peak_s"]))

    def build(self, network):
        """Returns ({system: executable}, what tuning says) of a network that is exported."""
        files, tuning = building.build(network.network, self.options, self.pace)
        if self.winograd:
            files |= building.build_winograd(network.network, self.options, self.pace)
        return files, tuning

    def prepare(self, network):
        """Exports and builds a network; returns (executables, the name of its output)."""
        record = network.record
        exported = building.export(network.network)
        record["flops"] = exported["flops"]
        files = network.files()
        if files is None:
            files, record["tuning"] = self.build(network)
            record["done"], record["errors"] = {}, {}
            record["executables"] = {system: (path.name, digest(path))
                                     for system, path in files.items()}
            self.save()
        return files, exported["output"]

    def onnx_file(self, network, system):
        """Returns the file that a peer reads."""
        return FOLDER / f"{network.network}.onnx"

    def start(self, workers, network, files, output):
        def start(system):
            self.tell(network, f"starting {system}")
            file = str(self.onnx_file(network, system))
            workers.start(
                system, types.SimpleNamespace(name=f"{self.NAME}/{network.name}"), system,
                systems.ALL[system].module, self.options.threads, self.cores, {
                    "network": network.network, "server": "experiments.images.worker",
                    "weights": str(FOLDER / f"{network.network}.pt"), "output": output,
                    "own_size": OWN, "onnx_model": file, "onnxruntime_model": file,
                    "nimble_file": str(files.get(system))})
        for system in (*self.REFERENCES, *files):
            if system not in network.record["errors"]:
                start(system)
        for system in self.peers_of(network):
            if system in network.record["errors"]:
                continue
            try:
                start(system)
            except ExperimentError as error:
                self.give_up(workers, network, system, error)

    def peers_of(self, network):
        return self.peers

    def give_up(self, workers, network, system, error):
        """Goes on without a peer, or tiles; of nimble and the reference the error is raised."""
        if system not in (*self.peers, *self.winograd):
            raise error
        self.tell(network, f"going on without {system}: {error}")
        network.record["errors"][system] = reason(error)
        if system in workers.workers:
            workers.drop(system)

    def measure_network(self, network, sizes):
        record = network.record
        files, output = self.prepare(network)
        self.measure_peak()  # the clock of an hour ago may have been another
        with pool.Pool() as workers:
            self.start(workers, network, files, output)
            compiled = set()
            self.pace.start_measuring()
            try:
                for size in sizes:
                    if tables.key_of(size) in record["done"]:
                        continue
                    if self.pace.is_over(len(record["done"])):
                        break
                    self.compile_peers(workers, network, size, compiled)
                    entry = self.measure_size(workers, network, size)
                    if size == OWN:
                        self.look_closer(workers, network, files, entry)
                    record["done"][tables.key_of(size)] = entry
                    self.save()
                    ratio = f", ratio {entry['ratio']:.2f}" if entry["ratio"] else ""
                    self.tell(network, f"{tables.sides(size)}{ratio}, size {len(record['done'])} of "
                                       f"{len(sizes)} at most; {self.pace.left_text()} of all")
            finally:
                self.pace.stop_measuring()

    def compile_peers(self, workers, network, size, compiled):
        """Lets the peers compile at the first size of each kind, OWN and any other; that is no
        measuring, and one that takes too long is given up."""
        kind = size == OWN
        if kind in compiled:
            return
        compiled.add(kind)
        begin, most = self.pace.clock(), self.pace.compile_seconds(self.effort["compile_s"])
        for system in [name for name in self.peers if name in workers.workers]:
            try:
                workers.workers[system].ask("check", size, seconds=most)
            except ExperimentError as error:
                self.give_up(workers, network, system, error)
        self.pace.pass_over(self.pace.clock() - begin)

    def examine(self, network, workers, size):
        """Runs every system once; returns ({system: figures of its result}, {system: error})."""
        outputs, failed = measure.run_once(workers.workers, REFERENCE, size)
        tiled = {name: outputs.pop(name) for name in self.winograd if name in outputs}
        found, errors = measure.compare(outputs, failed, REFERENCE, TOLERANCE, size)
        if tiled:
            more, errors = measure.compare(tiled | {REFERENCE: outputs[REFERENCE]}, errors,
                                           REFERENCE, WINOGRAD_TOLERANCE, size)
            found |= more
        figures = {name: {"difference": value} for name, value in found.items()}
        if self.winograd:
            if networks.EXACT in errors:
                raise errors[networks.EXACT]
            exact = outputs[networks.EXACT]
            for name in figures:
                figures[name]["error"] = float(abs((outputs | tiled)[name] - exact).max())
        return figures, errors

    def measure_size(self, workers, network, size):
        found, errors = self.examine(network, workers, size)
        for system, error in errors.items():
            self.give_up(workers, network, system, error)
        infos = network.record["infos"]
        for system, worker in workers.workers.items():
            if system not in infos:
                infos[system] = worker.ask("info")
        rounds = self.effort["own_rounds" if size == OWN else "rounds"]
        while True:
            timed = {name: worker for name, worker in workers.workers.items()
                     if name not in self.REFERENCES}
            try:
                times = measure.time_rounds(timed, size, rounds, self.effort["burst_us"])
                break
            except ExperimentError as error:
                self.give_up(workers, network, error.system, error)
        return self.summarise_size(network, size, times, found)

    def summarise_size(self, network, size, times, found):
        entry = tables.summarise_size(size, times, found)
        if self.winograd:
            entry["errors"] = {name: figures["error"] for name, figures in found.items()}
        return entry

    def look_closer(self, workers, network, files, entry):
        """Finds what a run at OWN calls."""
        from experiments.roofline.program import inspect
        us = entry["systems"][tables.MAIN]["median"]
        runs = max(FEWEST_PROFILED, min(MOST_PROFILED, int(PROFILE_US / us)))
        network.record["calls"] = kernels.calls_of(
            inspect(files[tables.MAIN], self.NAME),
            workers.workers[tables.MAIN].ask("profile", OWN, runs))

    def describe(self):
        """Returns what the result says of the run as such."""
        return {"format": FORMAT, "experiment": self.NAME, **self.provenance,
                "machine": self.machine, "threads": self.options.threads,
                "effort_of_a_size": self.effort, "total": self.options.total,
                "within": self.options.within, "seconds": self.pace.spent(),
                "tuning_budget": self.options.tune, "untuned": self.options.untuned,
                "tolerance": TOLERANCE, "range": [networks.LOWEST, networks.HIGHEST],
                "seeds": {"tuned": networks.TRACE_SEED, "measured": networks.MEASURED_SEED},
                "systems": merge_infos([network.record["infos"] for network in self.networks])}

    def assemble(self):
        from experiments.roofline.tables import roofs
        roof = roofs(self.peaks, self.options.threads)
        levels = kernels.memories(self.peaks, self.options.threads, self.machine["caches"])
        found = [tables.summarise(network.name, network.record, roof["flops"], levels)
                 for network in self.networks]
        return {**self.describe(), "roof": roof, "memories": levels, "networks": found,
                "doubts": tables.doubts(found), "bars": tables.bars(found)}


def main(arguments):
    return exit_code(lambda: Run(parse_arguments(arguments), arguments).execute(),
                     "interrupted; --resume goes on from here")
