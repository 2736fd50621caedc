"""What a tuning database says of a vendor's routines, as `nimble db` and `nimble dispatch` print it,
and copies of it that decide otherwise.
"""

import json
import shutil

from experiments.harness.statistics import geometric_mean
from experiments.roofline import work

TEMPLATE = "vendor"  # what records call the template of a vendor's routine
OWN, MIXED, VENDOR = "own", "mixed", "vendor"  # the builds
EVERYTHING = 1_000_000  # --limit of `nimble db top`


def symbols_of(text):
    """Returns {symbol: extent} of a shape's text like "s0=17,s1=4"."""
    return {name: int(extent) for name, _, extent in
            (part.partition("=") for part in text.split(",") if part)}


def met_sizes(inspected, profiles):
    """Returns {workload's text: the symbols' values that it was called with, each once} of an
    executable's kernels (`nimble inspect --kernels`) over profiles of its runs."""
    texts = {entry["name"]: entry["workload"] for entry in inspected["kernels"]}
    found = {}
    for profile in profiles:
        for call in profile["kernels"]:
            sizes = found.setdefault(texts[call["name"]], [])
            if call["shape"] not in sizes:
                sizes.append(call["shape"])
    return found


def region_words(symbols):
    """Returns how `nimble dispatch override` is told just these sizes."""
    return [word for name, value in symbols.items() for word in ("--region", f"{name}={value}")] \
        or ["--region", "all"]


def lies_in(region, symbols):
    """Whether a shape is one of a region like {"s0": [17, 64], "s0*s1": [0, None]}."""
    for feature, (first, last) in region.items():
        value = work.extent(feature, symbols)
        if value < first or (last is not None and value > last):
            return False
    return True


def by_shape(rows):
    """Returns {shape: {(template, configuration): ns}} of what `nimble db top` prints of one
    workload: of a candidate that was measured several times the last stage's time, which has the
    most samples."""
    found = {}
    for row in sorted(rows, key=lambda row: row["n"]):
        found.setdefault(row["shape"], {})[row["template"], row["config"]] = row["median_ns"]
    return found


def is_vendor(candidate):
    return candidate[0] == TEMPLATE


def compare(rows):
    """Returns for each shape at which both were measured {"shape", "own_ns", "vendor_ns"}, the
    fastest of each side. The fastest of many is in part the luckiest: this favours the side with
    more candidates, which is nimble's."""
    found = []
    for shape, times in by_shape(rows).items():
        sides = [[ns for candidate, ns in times.items() if is_vendor(candidate) == vendor]
                 for vendor in (False, True)]
        if all(sides):
            found.append({"shape": shape, "own_ns": min(sides[0]), "vendor_ns": min(sides[1])})
    return found


def best(rows, region, vendor):
    """Returns the configuration (JSON text) of one side that is fastest over the shapes of a region
    at which it was measured: of those that were measured at most of them the one of the least
    geometric mean of its time over the side's best. None if the side has none."""
    shapes = by_shape(rows)
    inside = {shape: times for shape, times in shapes.items()
              if lies_in(region, symbols_of(shape))}
    ratios = {}
    for times in (inside or shapes).values():
        own = {c: ns for c, ns in times.items() if is_vendor(c) == vendor}
        for (_, config), ns in own.items():
            ratios.setdefault(config, []).append(ns / min(own.values()))
    if not ratios:
        return None
    most = max(map(len, ratios.values()))
    return min((config for config, found in ratios.items() if len(found) == most),
               key=lambda config: geometric_mean(ratios[config], [1] * most))


class Database:
    """A database that one campaign filled. call: programs.call of a study; campaign: what
    `nimble tune --format json` printed."""

    def __init__(self, path, campaign, programs, study="vendor"):
        self.path, self.programs, self.study = path, programs, study
        self.tables = self.ask("nimble-dispatch", "show")
        self.rows = {table["workload"]: self.ask(
            "nimble-db", "top", "--workload", table["workload"], "--limit", EVERYTHING)
            for table in self.tables}
        self.texts = {one["hash"]: one["workload"]
                      for one in self.ask("nimble-db", "show", "workloads")}
        self.hashes = {}
        for trial in self.ask("nimble-db", "show", "trials", campaign["campaign"]):
            self.hashes.setdefault(trial["config"], set()).add(trial["configuration"])

    def ask(self, *words):
        return self.programs.call_json(self.study, [*words, "--db", self.path])

    def served(self):
        """Returns the tables of workloads of which a vendor's routine was measured."""
        return [table for table in self.tables
                if any(row["template"] == TEMPLATE for row in self.rows[table["workload"]])]

    def hash_of(self, table, config):
        """Returns the hash of a configuration's JSON text; None where two have this text."""
        found = {entry["config"] for entry in table["entries"]
                 if entry.get("knobs") == json.loads(config)} | self.hashes.get(config, set())
        return found.pop() if len(found) == 1 else None

    def sizes_of(self, table, met):
        """Returns the sizes at which a table's workload is met. A record's text is the workload's,
        and what is constant of its arguments behind."""
        record = self.texts.get(table["workload"], "")
        return [symbols for text, sizes in met.items() if record.startswith(f"{text} args=")
                for symbols in sizes]

    def overrides(self, build, met):
        """Returns (table, words of --region or --entry, configuration) of what a build decides
        otherwise than the tables: own has nimble's best where they have a vendor's routine, vendor
        a routine wherever there is one, at each size that the model meets (`met_sizes`)."""
        found = []
        for table in self.served():
            rows = self.rows[table["workload"]]
            places = [(region_words(symbols), {}) for symbols in self.sizes_of(table, met)] \
                if build == VENDOR else [
                    (["--entry", str(number)], entry["range"])
                    for number, entry in enumerate(table["entries"])
                    if entry.get("template") == TEMPLATE]
            for words, region in places:
                config = best(rows, region, build == VENDOR)
                found.append((table["table"], words, config and self.hash_of(table, config)))
        return found

    def copy(self, build, path, met=()):
        """Writes a copy that decides as the build asks; returns (its path, how often it decides
        otherwise, how often it could not)."""
        self.programs.fresh(path)
        for file in self.path.parent.glob(f"{self.path.name}*"):
            shutil.copyfile(file, file.with_name(path.name + file.name[len(self.path.name):]))
        changed = missing = 0
        for table, words, config in self.overrides(build, dict(met)) if build != MIXED else ():
            if config is None:
                missing += 1
                continue
            self.programs.call(self.study, [
                "nimble-dispatch", "override", table, *words, "--config", config, "--reason",
                f"a study compiles for {build} kernels", "--db", path])
            changed += 1
        return path, changed, missing

    def summary(self):
        """Returns of each workload with a vendor's routine what the campaign measured, and how many
        of its table's entries are the routine's."""
        found = []
        for table in self.served():
            shapes = compare(self.rows[table["workload"]])
            entries = [entry.get("template") == TEMPLATE for entry in table["entries"]]
            found.append({
                "workload": table["workload"], "label": table["label"],
                "entries": len(entries), "vendor_entries": sum(entries), "shapes": len(shapes),
                "vendor_faster": sum(one["vendor_ns"] < one["own_ns"] for one in shapes),
                "ratio": geometric_mean([one["vendor_ns"] / one["own_ns"] for one in shapes],
                                        [1] * len(shapes))})
        return found
