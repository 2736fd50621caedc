"""`experiments/run images`: image networks at 224 × 224 and over random sizes, against peers.

A network after the other is exported, tuned on sizes that are not measured, compiled by the tables
and by default schedules, and measured with all peers interleaved.
"""

import argparse
import json
import pathlib
import sys
import types

from experiments.harness import flags, measure, pool, report, systems
from experiments.harness.errors import USAGE, WRONG_RESULT, ExperimentError, exit_code
from experiments.harness.experiment import BUILD
from experiments.harness.run import Progress, Share, digest, merge_infos, reason
from experiments.images import building, kernels, networks, tables
from experiments.images.building import FOLDER
from experiments.images.networks import NETWORKS, OWN

FORMAT = 1
SIZES, QUICK_SIZES = 100, 4
FULL = {"rounds": 5, "burst_us": 30_000, "peak_s": 0.2, "compile_s": 400}
QUICK = {"rounds": 3, "burst_us": 15_000, "peak_s": 0.05, "compile_s": 240}
QUICK_NETWORKS = "mobilenet-v2,squeezenet"
TOLERANCE = 1e-4
PROFILE_US, FEWEST_PROFILED, MOST_PROFILED = 200_000, 3, 30
REFERENCE = "torch"  # whose results the others' are compared with; it isn't timed


def parse_arguments(arguments):
    names = ", ".join(NETWORKS)
    parser = argparse.ArgumentParser(
        prog="experiments/run images", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compares nimble with its peers on image networks with drawn weights, at "
                    f"{tables.sides(OWN)} and over random sizes.",
        epilog="The table goes to standard output, progress to standard error, results to\n"
               "experiments/results/images.json, .md, .svg and .png; a run that leaves something\n"
               "out (--quick, --untuned, --networks, --sizes, --peers, --threads) writes\n"
               "images-part.*.\n\n"
               "exit codes: 0 all bars are kept, 3 not, or a wrong result, 1 failure, 2 usage,\n"
               "130 interrupted")
    parser.add_argument("--within", metavar="TIME", type=flags.budget,
                        help="measure for so long in all, like 30m: as many of the sizes as fit, "
                             "the same time for each network. Exporting, tuning, compiling (that "
                             "of the peers too) and starting come on top")
    parser.add_argument("--networks", metavar="N[,N…]",
                        help=f"of {names} (default: all; with --quick {QUICK_NETWORKS})")
    parser.add_argument("--sizes", type=int, metavar="N",
                        help=f"drawn heights and widths (default {SIZES}, with --quick "
                             f"{QUICK_SIZES})")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="(default %(default)s)")
    parser.add_argument("--peers", metavar="P[,P…]",
                        help=f"of {', '.join(systems.IMAGE_PEERS)} (default: all)")
    parser.add_argument("--database", type=pathlib.Path, metavar="FILE",
                        default=BUILD / "tuning.db",
                        help="tuning database to compile with (default %(default)s)")
    parser.add_argument("--tune", metavar="BUDGET", type=flags.budget,
                        help="first tune each network for so long, like 5m, into the database "
                             f"(default: {building.TUNE}, with --quick {building.QUICK_TUNE}, "
                             "where it has no table of a convolution or product)")
    parser.add_argument("--untuned", action="store_true", help="default schedules alone")
    parser.add_argument("--quick", action="store_true",
                        help="two networks, few sizes, short rounds")
    parser.add_argument("--resume", action="store_true",
                        help="go on with an interrupted run of the same settings")
    options = parser.parse_args(arguments)
    if options.tune and options.untuned:
        parser.error("--tune and --untuned exclude each other")
    if options.sizes is not None and options.sizes < 0:
        parser.error("--sizes: 0 or more")
    chosen = options.networks or (QUICK_NETWORKS if options.quick else ",".join(NETWORKS))
    unknown = set(chosen.split(",")) - set(NETWORKS)
    if unknown:
        parser.error(f"--networks: no {', '.join(sorted(unknown))}; there are {names}")
    options.names = [name for name in NETWORKS if name in chosen.split(",")]
    return options


def plan_sizes(name, count):
    """Returns the sizes at which a network is measured, OWN first."""
    return [OWN, *(networks.measured_sizes(count) if NETWORKS[name].any_size else ())]


class Measured:
    """What is known of a network so far; `record` is all that is kept of it."""

    def __init__(self, name, record=None):
        self.name = name
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
    def __init__(self, options, arguments):
        from experiments.harness import machine
        self.options = options
        self.effort = dict(QUICK if options.quick else FULL)
        self.count = options.sizes if options.sizes is not None else (
            QUICK_SIZES if options.quick else SIZES)
        self.peers = (list(systems.IMAGE_PEERS) if options.peers is None else
                      systems.parse_peers(options.peers, systems.IMAGE_PEERS))
        if not self.peers:
            raise ExperimentError("--peers: one or more", USAGE)
        self.cores = machine.choose_cores(options.threads)
        if not 1 <= options.threads <= len(self.cores):
            raise ExperimentError(f"--threads {options.threads}: this process may use "
                                  f"{len(self.cores)} cores", USAGE)
        self.networks = [Measured(name) for name in options.names]
        self.peaks, self.measured_seconds = [], 0.0
        self.provenance = machine.provenance(["images", *arguments])
        self.machine = machine.describe(self.cores)
        part = (options.quick or options.untuned or self.count != SIZES or options.threads != 2
                or options.names != list(NETWORKS) or self.peers != list(systems.IMAGE_PEERS))
        self.stem = "images-part" if part else "images"
        self.partial = report.RESULTS / f"{self.stem}.partial.json"

    def settings(self):
        """What must be equal for an interrupted run to go on."""
        options = self.options
        return {"networks": options.names, "sizes": self.count, "threads": options.threads,
                "peers": self.peers, "untuned": options.untuned, "tune": options.tune,
                "within": options.within, **self.effort, "cpu": self.machine["cpu"],
                "commit": self.provenance["commit"]}

    def load_partial(self):
        if not self.options.resume:
            return
        if not self.partial.exists():
            print(f"{self.partial}: nothing to resume, starting afresh", file=sys.stderr)
            return
        saved = json.loads(self.partial.read_text(encoding="utf-8"))
        changed = [k for k, v in self.settings().items() if saved["settings"].get(k) != v]
        if changed:
            raise ExperimentError(f"{self.partial}: made with other settings "
                                  f"({', '.join(changed)}); run without --resume")
        self.networks = [Measured(name, saved["networks"].get(name)) for name in self.options.names]
        self.peaks, self.measured_seconds = saved["peaks"], saved["measured_seconds"]

    def save(self):
        report.write_json(self.partial, {
            "settings": self.settings(), "peaks": self.peaks,
            "measured_seconds": self.measured_seconds,
            "networks": {network.name: network.record for network in self.networks}})

    def execute(self):
        from experiments.studies import output, programs
        programs.need("nimble-compile", "nimble-doctor", "nimble-inspect",
                      *([] if self.options.untuned else ["nimble-tune"]))
        self.load_partial()
        sizes = {network.name: plan_sizes(network.name, self.count) for network in self.networks}
        ended = [network for network in self.networks if network.record["ended"]]
        self.progress = Progress(
            sum(map(len, sizes.values())) - sum(len(sizes[n.name]) - len(n.record["done"])
                                                for n in ended),
            sum(len(network.record["done"]) for network in self.networks))
        for network in self.networks:
            if network.record["ended"]:
                continue
            try:
                self.measure_network(network, sizes[network.name])
            except ExperimentError as error:
                print(f"images: {network.name}: {error}; going on", file=sys.stderr, flush=True)
                network.record["failure"] = reason(error)
            network.record["ended"] = True
            self.progress.leave_out(len(sizes[network.name]) - len(network.record["done"]))
            self.save()
        self.measure_peak()
        result = self.assemble()
        output.write(self.stem, result, tables.markdown(result),
                     lambda figure: tables.draw(figure, result))
        self.partial.unlink(missing_ok=True)
        return WRONG_RESULT if any(not bar["kept"] for bar in result["bars"]) else 0

    def measure_peak(self):
        from experiments.studies import programs
        self.peaks.append(programs.measure_peaks("images", [self.options.threads],
                                                  self.effort["peak_s"]))

    def share(self):
        """Returns the time of the next network: what is left, evenly over those that wait."""
        if not self.options.within:
            return Share(None)
        left = flags.in_seconds(self.options.within) - self.measured_seconds
        return Share(max(0.0, left) / sum(not one.record["ended"] for one in self.networks))

    def prepare(self, network):
        """Exports and builds a network; returns (executables, the name of its output)."""
        record = network.record
        exported = building.export(network.name)
        record["flops"] = exported["flops"]
        files = network.files()
        if files is None:
            files, record["tuning"] = building.build(network.name, self.options)
            record["done"], record["errors"] = {}, {}
            record["executables"] = {system: (path.name, digest(path))
                                     for system, path in files.items()}
            self.save()
        return files, exported["output"]

    def start(self, workers, network, files, output):
        def start(system):
            print(f"images: {network.name}: starting {system}", file=sys.stderr, flush=True)
            file = str(FOLDER / f"{network.name}.onnx")
            workers.start(
                system, types.SimpleNamespace(name=f"images/{network.name}"), system,
                systems.ALL[system].module, self.options.threads, self.cores, {
                    "network": network.name, "server": "experiments.images.worker",
                    "weights": str(FOLDER / f"{network.name}.pt"), "output": output,
                    "own_size": OWN, "onnx_model": file, "onnxruntime_model": file,
                    "nimble_file": str(files.get(system))})
        for system in (REFERENCE, *files):
            start(system)
        for system in self.peers:
            if system in network.record["errors"]:
                continue
            try:
                start(system)
            except ExperimentError as error:
                self.give_up(workers, network, system, error)

    def give_up(self, workers, network, system, error):
        """Goes on without a peer; of nimble and the reference the error is raised."""
        if system not in self.peers:
            raise error
        print(f"images: {network.name}: going on without {system}: {error}", file=sys.stderr,
              flush=True)
        network.record["errors"][system] = reason(error)
        if system in workers.workers:
            workers.drop(system)

    def measure_network(self, network, sizes):
        record = network.record
        files, output = self.prepare(network)
        self.measure_peak()  # the clock of an hour ago may have been another
        with pool.Pool() as workers:
            self.start(workers, network, files, output)
            share, compiled = self.share(), set()
            try:
                for size in sizes:
                    if tables.key_of(size) in record["done"]:
                        continue
                    if share.is_over(len(record["done"])):
                        break
                    self.compile_peers(workers, network, size, share, compiled)
                    entry = self.measure_size(workers, network, size)
                    if size == OWN:
                        record["calls"] = self.profile(workers, files, entry)
                    record["done"][tables.key_of(size)] = entry
                    self.save()
                    ratio = f", ratio {entry['ratio']:.2f}" if entry["ratio"] else ""
                    self.progress.step(f"{network.name}, {tables.sides(size)}{ratio}")
            finally:
                self.measured_seconds += share.clock() - share.start

    def compile_peers(self, workers, network, size, share, compiled):
        """Lets the peers compile at the first size of each kind, OWN and any other, outside of the
        share of time; one that takes too long is given up."""
        kind = size == OWN
        if kind in compiled:
            return
        compiled.add(kind)
        begin = share.clock()
        for system in [name for name in self.peers if name in workers.workers]:
            try:
                workers.workers[system].ask("check", size, seconds=self.effort["compile_s"])
            except ExperimentError as error:
                self.give_up(workers, network, system, error)
        share.start += share.clock() - begin

    def measure_size(self, workers, network, size):
        found, errors = measure.examine(workers.workers, REFERENCE, TOLERANCE, size)
        for system, error in errors.items():
            self.give_up(workers, network, system, error)
        infos = network.record["infos"]
        for system, worker in workers.workers.items():
            if system not in infos:
                infos[system] = worker.ask("info")
        while True:
            timed = {name: worker for name, worker in workers.workers.items() if name != REFERENCE}
            try:
                rounds = measure.time_rounds(timed, size, self.effort["rounds"],
                                             self.effort["burst_us"])
                break
            except ExperimentError as error:
                self.give_up(workers, network, error.system, error)
        return tables.summarise_size(size, rounds, found)

    def profile(self, workers, files, entry):
        """Returns what a run at OWN calls."""
        from experiments.roofline.program import inspect
        us = entry["systems"][tables.MAIN]["median"]
        runs = max(FEWEST_PROFILED, min(MOST_PROFILED, int(PROFILE_US / us)))
        return kernels.calls_of(inspect(files[tables.MAIN], "images"),
                                workers.workers[tables.MAIN].ask("profile", OWN, runs))

    def assemble(self):
        from experiments.roofline.tables import roofs
        roof = roofs(self.peaks, self.options.threads)
        levels = kernels.memories(self.peaks, self.options.threads, self.machine["caches"])
        found = [tables.summarise(network.name, network.record, roof["flops"], levels)
                 for network in self.networks]
        return {"format": FORMAT, "experiment": "images", **self.provenance,
                "machine": self.machine, "threads": self.options.threads,
                "effort_of_a_size": self.effort, "within": self.options.within,
                "tuning_budget": self.options.tune, "untuned": self.options.untuned,
                "tolerance": TOLERANCE, "range": [networks.LOWEST, networks.HIGHEST],
                "seeds": {"tuned": networks.TRACE_SEED, "measured": networks.MEASURED_SEED},
                "roof": roof, "memories": levels, "networks": found, "doubts": tables.doubts(found),
                "systems": merge_infos([network.record["infos"] for network in self.networks]),
                "bars": tables.bars(found)}


def main(arguments):
    return exit_code(lambda: Run(parse_arguments(arguments), arguments).execute(),
                     "interrupted; --resume goes on from here")
