"""Builds an experiment's Relax module for TVM, tuned as far as its own tuner goes.

    python -m experiments.peers.tvm_build NAME tune THREADS FOLDER
    python -m experiments.peers.tvm_build NAME build THREADS FOLDER SECONDS

MetaSchedule is TVM's tuner. It gets the module with its symbolic length, SECONDS of wall time in a
process of its own, and the machine to itself; whatever schedules it has stored by then are applied,
the rest of the kernels keep TVM's default schedules. With 0 seconds nothing is tuned. The driver
(build) keeps what came of it in FOLDER/report.json, so that the result of an experiment can say it;
a build that was tuned for longer than is asked for stays.
"""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from experiments.harness import experiment as experiments
from experiments.harness import worker

TRIALS = 10_000  # the time runs out first


def target(threads):
    import tvm
    return tvm.target.Target({"kind": "llvm", "mcpu": host_cpu(), "num-cores": threads})


def host_cpu():
    """Returns LLVM's name of this machine's CPU."""
    import tvm
    return tvm.get_global_func("target.llvm_get_system_cpu")()


def drive(experiment, machine):
    """Returns what runs the model: `main` of the virtual machine, or what the experiment wraps it
    in."""
    return experiment.drive_tvm(machine) if experiment.drive_tvm else machine["main"]


def lowered(module, where):
    import tvm
    from tvm.relax import transform
    with where:
        return tvm.transform.Sequential([
            transform.DecomposeOpsForInference(), transform.CanonicalizeBindings(),
            tvm.relax.get_pipeline("zero")])(module)


def tune(experiment, threads, folder):
    worker.die_with_parent()  # a driver that is killed must not leave the tuner behind
    from tvm.s_tir import meta_schedule
    where = target(threads)
    meta_schedule.relax_integration.tune_relax(
        lowered(experiment.make_tvm(), where), {}, where, str(folder / "tuning"),
        max_trials_global=TRIALS, cost_model="xgb")


def stored_schedules(folder):
    path = folder / "tuning" / "database_tuning_record.json"
    return sum(1 for _ in open(path, encoding="utf-8")) if path.exists() else 0


def read_report(folder):
    """Returns what an earlier build left, or {}."""
    path = folder / "report.json"
    return json.loads(path.read_text()) if path.exists() else {}


def build(experiment, threads, folder, seconds):
    """Tunes, compiles and exports to folder/model.so unless that was made from the same sources
    and tuned for `seconds` or more."""
    import tvm
    digest = hashlib.sha256(f"{tvm.__version__} {threads}".encode())
    sources = {pathlib.Path(__file__), *experiment.sources,
               *(experiments.ROOT / "experiments").glob(
                   f"{experiment.name.partition('/')[0].replace('-', '_')}/tvm_model.py")}
    for source in sorted(sources):
        digest.update(source.read_bytes())
    made = read_report(folder)
    if made.get("sources") == digest.hexdigest() and made["seconds"] >= seconds:
        return
    folder.mkdir(parents=True, exist_ok=True)
    where = target(threads)
    module = lowered(experiment.make_tvm(), where)  # what fails here need not be tuned
    # What an earlier tuning stored was not found in this one's time.
    shutil.rmtree(folder / "tuning", ignore_errors=True)
    outcome = tune_in_process(experiment, threads, folder, seconds) if seconds else "none"
    if stored_schedules(folder):
        with where:
            module = tvm.relax.transform.MetaScheduleApplyDatabase(
                str(folder / "tuning"))(module)
    tvm.compile(module, target=where).export_library(str(folder / "model.so"))
    (folder / "report.json").write_text(json.dumps({
        "tuning": outcome, "seconds": seconds, "mcpu": host_cpu(), "sources": digest.hexdigest()}))


def tune_in_process(experiment, threads, folder, seconds):
    """Returns what came of the tuning as a sentence's end."""
    command = [sys.executable, "-m", "experiments.peers.tvm_build", experiment.name, "tune",
               str(threads), str(folder)]
    with open(folder / "tuning.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            code = process.wait(seconds)
            ended = "done" if code == 0 else f"its process ended with {code}"
        except subprocess.TimeoutExpired:
            ended = "the time ran out"
        finally:
            end_group(process)
    if ended != "done":
        last = (folder / "tuning.log").read_text(errors="replace").strip().splitlines()
        error = [line for line in last if "Error" in line]
        ended += f" ({error[-1].strip()[:160]})" if error else ""
    return f"{stored_schedules(folder)} schedules measured in {seconds} s: {ended}"


def end_group(process):
    """Ends the tuner and the processes it builds and measures candidates in."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


if __name__ == "__main__":
    chosen = experiments.load(sys.argv[1])
    {"tune": tune, "build": build}[sys.argv[2]](
        chosen, int(sys.argv[3]), pathlib.Path(sys.argv[4]), *map(int, sys.argv[5:]))
