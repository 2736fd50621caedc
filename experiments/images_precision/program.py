"""`experiments/run images-precision`: image networks in bf16 and in 8-bit integers, against peers in
the same.

Each case, a network in a type, is measured as experiments/images measures a network; the references
of results are PyTorch in f64 and in f32, which tells what a narrower type may be wrong by
(experiments/precision/accuracy.py). At 224 × 224 the classes of some images are compared.
"""

from experiments.harness import statistics
from experiments.harness.errors import ExperimentError, exit_code
from experiments.images import building
from experiments.images import program as images
from experiments.images import tables as image_tables
from experiments.images.arguments import parse
from experiments.images.building import FOLDER
from experiments.images.networks import OWN
from experiments.images_precision import models, tables
from experiments.images_precision.models import CASES, KINDS
from experiments.precision import accuracy
from experiments.precision.models import EXACT, SINGLE


def parse_arguments(arguments):
    return parse(Run, "case", "Compares nimble with its peers on image networks in bf16 and in "
                              "8-bit integers", arguments)


class Measured(images.Measured):
    def __init__(self, name, record=None):
        super().__init__(name, record)
        self.network = CASES[name].network
        self.case = CASES[name]
        self.record.setdefault("agreement", {})
        self.record.setdefault("tolerances", {})


class Run(images.Run):
    NAME, SIZES, QUICK_SIZES = "images-precision", 20, 2
    NAMES, PEERS = tuple(CASES), models.PEERS
    QUICK_NAMES = "mobilenet-v2-bf16,mobilenet-v2-int8"
    REFERENCES = (EXACT, SINGLE)
    WINOGRAD = ()

    def make_measured(self, name, record=None):
        return Measured(name, record)

    def onnx_file(self, network, system):
        if KINDS[network.case.kind].quantised and system not in self.REFERENCES:
            return self.quantise(network)
        return super().onnx_file(network, system)

    def quantise(self, network):
        from experiments.precision import quantise
        try:
            return quantise.make("static", FOLDER / f"{network.network}.onnx", models.calibration())
        except RuntimeError as error:
            raise ExperimentError(f"{network.name}: {error}") from None

    def build(self, network):
        kind = KINDS[network.case.kind]
        source = self.onnx_file(network, kind.precision.nimble)
        output = FOLDER / f"{network.name}.nimble"
        files = {kind.precision.nimble: output}
        if self.options.untuned:
            building.compile_network(source, output, None, kind.options)
            return files, None
        return files, building.build_tuned(network.network, output, self.options, self.pace,
                                           kind.options, source)

    def peers_of(self, network):
        return [name for name in self.peers if name in network.case.precision.rivals]

    def examine(self, network, workers, size):
        figures, errors, tolerance = accuracy.examine(
            workers.workers, network.case.precision, images.TOLERANCE, size)
        network.record["tolerances"][image_tables.key_of(size)] = tolerance
        return figures, errors

    def summarise_size(self, network, size, times, found):
        precision = network.case.precision
        systems, comparison = statistics.summarize(
            times, [name for name in precision.rivals if name in times],
            precision.nimble if precision.nimble in times else None)
        for name, value in systems.items():
            value.update(found[name])
        return {"size": list(size), "count": 1, "systems": systems, **comparison}

    def look_closer(self, workers, network, files, entry):
        """Compares the classes of some images."""
        begin = self.pace.clock()
        outputs = {system: worker.ask("outputs", OWN, models.CLASSIFIED)
                   for system, worker in workers.workers.items()}
        network.record["agreement"] = tables.agreement(outputs, EXACT)
        self.pace.pass_over(self.pace.clock() - begin)

    def assemble(self):
        found = [tables.summarise(network.case, network.record) for network in self.networks]
        return {**self.describe(), "cases_of": {"calibrated": models.CALIBRATED,
                                                "classified": models.CLASSIFIED},
                "networks": found, "bars": tables.bars(found)}

    def measure_peak(self):
        """No case is compared with a limit."""

    def finish(self, result):
        from experiments.studies import output
        return output.finish(self.stem, result, tables)


def main(arguments):
    return exit_code(lambda: Run(parse_arguments(arguments), arguments).execute(),
                     "interrupted; --resume goes on from here")
