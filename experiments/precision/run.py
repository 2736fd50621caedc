"""A run of experiments/run precision: what it adds to one of speeds.

Errors against f64 beside the times, limits of the machine, similarities of sentences, bars. nimble
too may fail: it is listed with its error then, and no bar of the case is kept.
"""

import sys

from experiments.harness import report, run, systems
from experiments.harness.errors import WRONG_RESULT, ExperimentError
from experiments.precision import accuracy, limits, similarity, tables
from experiments.precision.models import EXACT, SINGLE, row_of
from experiments.roofline.tables import last_cache
from experiments.studies import programs

REFERENCES = (EXACT, SINGLE)
PEAK_SECONDS, QUICK_PEAK_SECONDS = 0.2, 0.05
PAIRS, QUICK_PAIRS = 600, 100  # of sentences, of the 1,725 of MRPC's test part


class Run(run.Run):
    def __init__(self, arguments):
        super().__init__(arguments)
        self.unbuilt = {}  # {experiment: {system of nimble's: error}}

    def choose_peers(self, text, possible):
        chosen = systems.parse_peers(text, possible)
        return [name for name in possible if name in REFERENCES or name in chosen]

    def may_fail(self, case, system):
        return system not in REFERENCES

    def build_model(self, model, only=None):
        built = {}
        for system in model.nimble_models(run.models.folder(model)):
            try:
                built |= super().build_model(model, system)
            except ExperimentError as error:
                if error.system is None:
                    raise
                print(f"{model.case}: going on without {system}: {error}", file=sys.stderr)
                self.unbuilt.setdefault(model.name, {})[system] = run.reason(error)
        return built

    def measure_case(self, case, progress):
        case.errors.update(self.unbuilt.get(case.experiment.name, {}))
        super().measure_case(case, progress)
        self.measure_peaks(case)  # the clock of an hour ago may have been another
        self.save()

    def measure_peaks(self, case):
        if not (programs.BIN / "nimble-doctor").exists():
            print(f"{case.name}: without limits: {programs.BIN / 'nimble-doctor'} is missing",
                  file=sys.stderr)
            return
        seconds = QUICK_PEAK_SECONDS if self.options.quick else PEAK_SECONDS
        found = programs.measure_peaks(self.experiment.name, [case.threads], seconds)
        case.study.setdefault("peaks", []).append({"ceilings": found["ceilings"]})

    def examine_case(self, case, workers, give_up):
        if not case.study.get("peaks"):
            self.measure_peaks(case)
        if row_of(case.experiment).least_correlation is None or "similarities" in case.study:
            return
        found = {}
        for system in list(workers.workers):
            worker = workers.workers[system]
            before = worker.seconds
            try:
                found[system] = similarity.cosines(
                    worker.ask("embed", QUICK_PAIRS if self.options.quick else PAIRS))
            except ExperimentError as error:
                give_up(system, error)
            worker.seconds = before  # not held against it
        case.study["pairs"] = len(found[SINGLE])
        case.study["similarities"] = similarity.compare(found, SINGLE)
        self.save()

    def examine(self, case, workers, reference, length):
        figures, errors, tolerance = accuracy.examine(
            workers, row_of(case.experiment).precision, case.experiment.tolerance, length)
        case.study.setdefault("tolerances", {})[str(length)] = tolerance
        return figures, errors

    def assemble(self):
        result = super().assemble()
        cache = last_cache(self.machine["caches"])
        result["last_cache"], result["bars"] = cache, []
        for case, shown in zip(self.cases, result["cases"]):
            row = row_of(case.experiment)
            peaks = case.study.get("peaks")
            shown["roof"] = limits.roof(peaks, case.threads, row.precision) if peaks else None
            for entry in shown["lengths"]:
                entry["tolerance"] = case.study["tolerances"][str(entry["length"])]
                if shown["roof"]:
                    entry["limits"] = limits.limits(row, shown["roof"], cache, entry["length"])
            shown["model"], shown["precision"] = row.model, row.precision.name
            shown["accuracy"] = accuracy.summarise(shown["lengths"])
            shown["similarities"] = case.study.get("similarities")
            shown["pairs"] = case.study.get("pairs")
            if not self.options.no_nimble:
                result["bars"] += tables.bars(row, shown)
        for model in self.models:
            for system, words in model.system_options.items():
                if system in result["systems"]:
                    result["systems"][system]["settings"] += f", compiled with {' '.join(words)}"
        result["agreement"] = tables.AGREEMENT.format(tolerance=result["tolerance"])
        return result

    def write(self, result):
        rows = [row_of(case.experiment) for case in self.cases]
        more = tables.markdown(rows, result)
        report.write_all(result, self.stem, more)
        print("\n\n".join([*(report.table(case) for case in result["cases"]), more]))

    def verdict(self, result):
        return WRONG_RESULT if any(not bar["kept"] for bar in result["bars"]) else 0
