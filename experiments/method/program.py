"""`experiments/run method`: the paper's way of tuning symbolic shapes, measured.

Of each of BERT's dense products: a search at one size, the best k evaluated at all sizes, one
configuration kept (the paper, section 4.5); beside it our table, and a build for each of 16 lengths
that was tuned for this length alone. And of the cost model: how well it ranks, round by round, and
how soon it is where random search ends.
"""

import argparse
import math
import shutil
import sys
import time

from experiments.harness import flags
from experiments.harness.errors import ExperimentError, exit_code
from experiments.harness.experiment import BUILD
from experiments.method import choice, models, tables

FORMAT = 1
SEARCHED = 64  # the paper's size
# Half of them lie outside of what a campaign measures that has time for all of its sizes
# (tuner/service/points.cpp). What one did measure its trials tell.
INSIDE = (8, 27, 32, 53, 64, 101, 128, 256)
OUTSIDE = (11, 21, 43, 59, 90, 113, 180, 230)
KS = (1, 10, 100)
# Shares of the time. The method gets a seventh of what the builds for single lengths get together:
# a campaign may end a little behind its budget, and the bar is at a sixth.
PER_SHAPE, COST_MODEL = 0.48, 0.15
METHOD = PER_SHAPE / 7
FULL = {"within": "18m", "products": tuple(models.PRODUCTS), "shapes": 8, "seeds": 10,
        "trials": 64, "max_trials": 300, "rounds": 9, "burst_us": 8_000}
QUICK = {"within": "150s", "products": ("768x768",), "shapes": 2, "seeds": 2, "trials": 32,
         "max_trials": 100, "rounds": 5, "burst_us": 5_000}


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="experiments/run method", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compares tuning at one size with cross-evaluation, as the paper does, with "
                    "tuning each of 16 lengths; and the cost model with random search.",
        epilog="The table goes to standard output, results to experiments/results/method.json, .md,"
               "\n.svg and .png; a run that leaves something out writes method-part.*.\n\n"
               "exit codes: 0 all bars are kept, 3 not, 1 failure, 2 usage, 130 interrupted")
    flags.add_within(parser, "what the campaigns and the timing share (default "
                             f"{FULL['within']}, with --quick {QUICK['within']})")
    parser.add_argument("--products", metavar="P[,P…]",
                        help=f"of {', '.join(models.PRODUCTS)} (default: all)")
    parser.add_argument("--seeds", type=int, metavar="N",
                        help="searches of each kind, for the cost model (default "
                             f"{FULL['seeds']})")
    parser.add_argument("--quick", action="store_true",
                        help="one product, four lengths, two seeds")
    options = parser.parse_args(arguments)
    options.names = options.products.split(",") if options.products else None
    unknown = set(options.names or ()) - set(models.PRODUCTS)
    if unknown:
        parser.error(f"--products: no {', '.join(sorted(unknown))}")
    if options.seeds is not None and options.seeds < 1:
        parser.error("--seeds: one or more")
    return options


class Study:
    def __init__(self, effort):
        from experiments.studies import programs
        self.programs, self.effort = programs, effort
        programs.need("nimble", "nimble-tune", "nimble-dispatch", "nimble-compile", "nimble-db")
        self.flags = programs.flags("nimble-tune")
        if "--random-search" not in self.flags:
            raise ExperimentError("nimble tune knows no --random-search; build this commit's with "
                                  "scripts/build release nimble-programs")
        self.folder = BUILD / "method"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.whole = flags.in_seconds(effort["within"])
        self.lengths = sorted(INSIDE[:effort["shapes"]] + OUTSIDE[:effort["shapes"]]) \
            if effort["shapes"] == len(INSIDE) else \
            sorted(INSIDE[-effort["shapes"]:] + OUTSIDE[-effort["shapes"]:])

    def search_end(self):
        """A search ends by its trials where nimble tune can end it so, else by its budget alone."""
        return ["--max-trials", self.effort["max_trials"]] if "--max-trials" in self.flags else []

    def tune(self, model, database, budget, *more):
        self.programs.fresh(database)
        return self.programs.call_json("method", [
            "nimble-tune", model, "--db", database, "--threads", 1, "--quiet", "--budget",
            f"{max(1, math.floor(budget))}s", *more])

    def compile(self, model, file, *more):
        self.programs.call("method", ["nimble-compile", model, "-o", file, "--quiet",
                                      "--portable=off", *more])
        return file

    def trials(self, database, campaign):
        return self.programs.call_json("method", [
            "nimble-db", "show", "trials", campaign["campaign"], "--db", database])

    def keep_one(self, model, name, database, campaign, configuration):
        """Compiles with one configuration for all sizes, laid over a copy of the database."""
        copy = self.programs.fresh(self.folder / f"{name}.db")
        for file in database.parent.glob(f"{database.name}*"):
            shutil.copyfile(file, file.with_name(copy.name + file.name[len(database.name):]))
        table = campaign["workloads"][0]["table"]
        self.programs.call("method", [
            "nimble-dispatch", "override", table, "--region", "all", "--config", configuration,
            "--reason", "the paper keeps one configuration", "--db", copy])
        return self.compile(model, self.folder / f"{name}.nimble", "--db", copy)

    def symbolic(self, name, model, campaigns):
        """Tunes as the paper does; returns {variant: executable}, what is told of each, and the
        sizes at which the campaign that the bars are of timed anything."""
        from experiments.harness import workload
        files = {"default": self.compile(model, self.folder / f"{name}-default.nimble")}
        about, sizes_seen = {"default": {}}, set()
        share = METHOD * self.whole / len(self.effort["products"])
        ways = {"64": ["--size", SEARCHED]}
        # Where the search runs at one size unasked there is nothing to compare this with.
        if "--search-shapes" in self.flags:
            ways["medoids"] = []
        for way, words in ways.items():
            database = self.folder / f"{name}-{way}.db"
            found = self.tune(model, database, share, "--top-k", max(KS), *words,
                              *self.search_end())
            campaigns.append({"product": name, "way": way, "consumed_s": found["consumed_s"],
                              "workload": found["workloads"][0]})
            about[f"table-{way}"] = {"seconds": found["consumed_s"],
                                     "entries": found["workloads"][0].get("entries")}
            files[f"table-{way}"] = self.compile(
                model, self.folder / f"{name}-{way}.nimble", "--db", database)
            if way != "64":
                continue
            trials = self.trials(database, found)
            sizes_seen = choice.measured_sizes(trials)
            if "table" not in found["workloads"][0]:
                continue
            sizes = {s for times in choice.crossed(trials).values() for s in times}
            weights = {"even": lambda size: 1,
                       "mrpc": choice.nearest_weight(workload.histogram(("pair",)), sizes)}
            for k, weighed in [*((k, "even") for k in KS), (max(KS), "mrpc")]:
                variant = f"one-{k}" + ("" if weighed == "even" else f"-{weighed}")
                config, among = choice.one_configuration(trials, SEARCHED, k, weights[weighed])
                about[variant] = {"configuration": config, "among": among}
                files[variant] = self.keep_one(model, f"{name}-{variant}", database, found, config)
        return files, about, sizes_seen

    def product(self, name, campaigns):
        from experiments.method import timing
        model = models.write(name, self.folder)
        files, about, sizes_seen = self.symbolic(name, model, campaigns)
        each = PER_SHAPE * self.whole / len(self.effort["products"]) / len(self.lengths)
        rows, spent = [], 0.0
        for length in self.lengths:
            shape = ["--shape", f"n={length}"]
            database = self.folder / f"{name}-n{length}.db"
            found = self.tune(model, database, each, *shape, *self.search_end())
            spent += found["consumed_s"]
            static = self.compile(model, self.folder / f"{name}-n{length}.nimble", *shape, "--db",
                                  database)
            rows.append({"length": length, "inside": length in sizes_seen,
                         "trials": found["workloads"][0]["trials"], "variants": timing.relative(
                {"static": static, **files}, (length, models.PRODUCTS[name][0]),
                self.effort["rounds"], self.effort["burst_us"])})
        return {"lengths": rows, "about": about, "per_shape_s": spent,
                "method_s": about["table-64"]["seconds"]}

    def searches(self, name):
        """Searches with the cost model and at random, seed by seed; returns their records."""
        model = models.write(name, self.folder)
        seeds, trials = self.effort["seeds"], self.effort["trials"]
        budget = COST_MODEL * self.whole / (2 * seeds)
        # As many trials as random search is to have, whether it gains or not.
        end = [word for flag, value in (("--max-trials", trials), ("--patience", trials))
               if flag in self.flags for word in (flag, value)]
        found = []
        for seed in range(1, seeds + 1):
            record = {"seed": seed}
            for kind, words in (("model", []), ("random", ["--random-search"])):
                database = self.folder / f"{name}-{kind}-{seed}.db"
                campaign = self.tune(model, database, budget, "--size", SEARCHED, "--seed", seed,
                                     "--top-k", 1, *words, *end)
                rows = self.trials(database, campaign)
                searched = choice.searched(rows, SEARCHED)
                # By the default schedule's, the first that is tried: campaigns lie apart in time.
                if not searched or not searched[0][1]:
                    raise ExperimentError(f"method: seed {seed}: {budget:.0f} s did not suffice "
                                          "for the default schedule; give a larger --within")
                unit = searched[0][1]
                record[kind] = [ns and ns / unit for _, ns in searched][:trials]
                if kind == "model":
                    record["correlations"] = choice.correlations(rows, SEARCHED)
            found.append(record)
        return found


def execute(options, arguments):
    from experiments.harness import machine
    from experiments.studies import output
    effort = dict(QUICK if options.quick else FULL)
    effort["within"] = options.within or effort["within"]
    effort["products"] = tuple(options.names or effort["products"])
    effort["seeds"] = options.seeds or effort["seeds"]
    begin = time.monotonic()
    study = Study(effort)
    products, campaigns = {}, []
    for name in effort["products"]:
        products[name] = study.product(name, campaigns)
        print(f"method: {name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    searches = study.searches(effort["products"][0])
    cost_model = tables.cost_model(searches)
    summary = tables.summarise(products)
    result = {"format": FORMAT, "experiment": "method", **machine.provenance(arguments),
              "machine": machine.describe(machine.choose_cores(1)), "effort": effort,
              "ended_by_trials": bool(study.search_end()), "searched": SEARCHED,
              "products": products, "campaigns": campaigns, "summary": summary,
              "searches": searches, "searched_product": effort["products"][0],
              "cost_model": cost_model, "seconds": time.monotonic() - begin,
              "bars": tables.bars(summary, cost_model, effort["trials"])}
    part = options.quick or options.names or options.seeds or \
        flags.in_seconds(effort["within"]) < flags.in_seconds(FULL["within"])
    return output.finish("method-part" if part else "method", result, tables)


def main(arguments):
    return exit_code(lambda: execute(parse_arguments(arguments), ["method", *arguments]))
