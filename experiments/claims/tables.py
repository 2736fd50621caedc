"""What the figures say of the paper's sentences."""

from experiments.studies.output import markdown_table, percent

SHAPE = ("ShapeOf", "Invoke")  # of programs without calls: reading extents, scalar functions
MOST_SHAPE = 0.01
LOOP = "LSTM"  # whose Invoke calls functions, too, and whose kernels take a few µs each


def instruction(found, name):
    """Returns count and µs per run of an instruction."""
    for entry in found["instructions"]:
        if entry["name"] == name:
            return entry["count"], entry["us"]
    return 0.0, 0.0


def shape_cost(found):
    """Returns what reading extents and computing sizes takes: count, µs and share of a run."""
    counts, times = zip(*(instruction(found, name) for name in SHAPE))
    return {"count": sum(counts), "us": sum(times), "share": sum(times) / found["wall_us"]}


def placement(found):
    """Returns the copies between devices of a run against its inputs and results."""
    moved = {"in": 0, "out": 0, "count": 0}
    for copy in found["copies"]:
        moved["in" if copy["from"] == "cpu" else "out"] += copy["bytes"]
        moved["count"] += copy["count"]
    return {"copies": moved["count"], "copied": moved["in"] + moved["out"],
            "beyond": moved["in"] + moved["out"] - found["input_bytes"] - found["output_bytes"],
            "extents": shape_cost(found)["count"]}


def overhead(found):
    """Returns instructions of a run, and what is not in kernels: µs per instruction, share."""
    count = sum(entry["count"] for entry in found["instructions"])
    others = found["wall_us"] - found["kernel_us"]
    return {"instructions": count, "each_us": others / count, "share": others / found["wall_us"],
            "kernel_calls": instruction(found, "InvokePacked")[0]}


def without(plain, found):
    """Returns what leaving a pass out changes."""
    def storages(of):
        return instruction(of, "AllocStorage")[0]
    return {"storages": [storages(plain), storages(found)],
            "kernel_calls": [overhead(plain)["kernel_calls"], overhead(found)["kernel_calls"]],
            "peak": [plain["peak"], found["peak"]],
            "slower": found["wall_us"] / plain["wall_us"] - 1}


def judge(result):
    """Returns a line for each claim: what the paper says, the figure, whether it holds here."""
    costs = [run["shape"] for run in result["runs"] if run["model"] != LOOP]
    worst = max(cost["share"] for cost in costs)
    beyond = result["placement"]["beyond"]
    return [
        {"claim": "3.4: placement keeps what shape functions need off the device: nothing is copied "
                  "but inputs and results",
         "found": f"{result['placement']['copies']:g} copies a run, {beyond:+g} bytes beyond inputs "
                  f"and results; {result['placement']['extents']:g} reads of extents and scalar "
                  "functions, each on the host",
         # Where nothing is copied nothing runs on the device, and nothing is shown.
         "holds": result["placement"]["copies"] > 0 and beyond <= 0},
        {"claim": "3.2: sizes are computed at run time, at little cost "
                  f"(here: {percent(MOST_SHAPE)} of a run at most)",
         "found": f"at most {percent(worst, 2)} of a run, the profiler's own time included",
         "holds": worst <= MOST_SHAPE},
        {"claim": "3.3: explicit allocation lets passes avoid copies and buffers",
         "found": "; ".join(
             f"{row['model']} without {row['pass']}: storages {row['storages'][0]:g} → "
             f"{row['storages'][1]:g}, kernels {row['kernel_calls'][0]:g} → "
             f"{row['kernel_calls'][1]:g}, {percent(row['slower'], 1, '+')} time"
             for row in result["passes"]),
         "holds": any(row["storages"][1] > row["storages"][0] or
                      row["kernel_calls"][1] > row["kernel_calls"][0] for row in result["passes"])},
        {"claim": "4: instructions are coarse, so that dispatch adds little",
         "found": "; ".join(f"{run['model']} at {run['length']}: {run['overhead']['instructions']:g}"
                            f" instructions, {percent(run['overhead']['share'], 2)} outside of "
                            "kernels" for run in result["runs"]),
         "holds": all(run["overhead"]["share"] <= 0.05 for run in result["runs"]
                      if run["model"] != LOOP)},
        {"claim": "3.5: more kernels make little of a model's size",
         "found": "; ".join(f"{size['model']}: code {size['code'] / 1024:.0f} KiB, "
                            f"{percent(size['code'] / size['constants'], 2)} of its weights"
                            for size in result["sizes"]),
         "holds": all(size["code"] <= 0.02 * size["constants"] for size in result["sizes"])}]


def markdown(result):
    lines = ["# Claims of the paper's text", "",
             f"{result['machine']['cpu']}, {result['threads']} threads. Times are of a profiled "
             "run.", ""]
    lines += ["| claim | found here | |", "|---|---|---|",
              *(f"| {row['claim']} | {row['found']} | {'holds' if row['holds'] else 'does not'} |"
                for row in result["claims"]), "",
              "Per run:", ""]
    lines += markdown_table(
        ["", "length", "ms", "in kernels", "instructions", "kernels", "shape code µs", "its share",
         "others, µs an instruction"],
        [[run["model"], str(run["length"]), f"{run['wall_us'] / 1e3:.2f}",
          percent(run["kernel_us"] / run["wall_us"], 2), f"{run['overhead']['instructions']:g}",
          f"{run['overhead']['kernel_calls']:g}", f"{run['shape']['us']:.1f}",
          percent(run["shape"]["share"], 2), f"{run['overhead']['each_us']:.3f}"]
         for run in result["runs"]])
    lines += ["", "Without a pass:", ""]
    lines += markdown_table(
        ["", "pass", "storages", "without", "kernels", "without", "peak MiB", "without", "time"],
        [[row["model"], row["pass"], *(f"{v:g}" for v in row["storages"]),
          *(f"{v:g}" for v in row["kernel_calls"]), *(f"{v / (1 << 20):.2f}" for v in row["peak"]),
          percent(row["slower"], 1, "+")] for row in result["passes"]])
    return "\n".join(lines) + "\n"


def draw(figure, result):
    """Where a run's time goes besides kernels."""
    figure.set_size_inches(8, 4)
    axis = figure.subplots()
    axis.set_title(f"A run without its kernels\n{result['machine']['cpu']}", fontsize=10)
    labels = []
    for at, run in enumerate(result["runs"]):
        shape = run["shape"]["share"]
        axis.barh(at, 100 * shape, color="#0072B2", label="shape code" if at == 0 else None)
        axis.barh(at, 100 * (run["overhead"]["share"] - shape), left=100 * shape, color="#999999",
                  label="other instructions" if at == 0 else None)
        labels.append(f"{run['model']}, {run['length']}")
    axis.set_yticks(range(len(labels)), labels)
    axis.invert_yaxis()
    axis.set_xlabel("% of the run")
    axis.grid(alpha=0.3, axis="x")
    axis.legend()
