"""A short tuning campaign of `scripts/gpu-check`: packed here, measured there, merged here.

`nimble campaigns pack` draws, compiles and signs the candidates of a model's kernels, with what
each should compute, into a database that is a file. On the machine with the GPU, which has no
compiler, nimble's worker takes them from that file, checks and times each in a process of its own
as in any campaign, and writes what it finds into a copy of it:

    nimble db import --db tuning.db experiments/results/gpu-tuning.db

adds these records, under that GPU's name, to a database here.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys

from experiments.harness import batch
from experiments.harness.errors import FAILURE, ExperimentError
from experiments.harness.experiment import ROOT

FOLDER, DATABASE, RECORDS = "tuning", "packed.db", "gpu-tuning.db"
PROGRAMS = ("nimble-worker", "nimble-fleet-worker")
KEY, KEYS = "gpu-check", "keys"
LENGTHS = ("19", "104")  # of MRPC pairs: what is searched at
# Of the system that every machine has.
COMMON = re.compile(r"^(ld-linux.*|libc|libm|libgcc_s|libstdc\+\+|libdl|libpthread|librt)\.so")
STOP_SECONDS = 10  # that a worker takes at most to give its job back
MOST_LINES = 40


def libraries_of(path):
    """Returns the files of what a program or library links, without what every machine has."""
    text = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
    return {name: file for name, file in re.findall(r"^\s*(\S+) => (/\S+)", text, re.MULTILINE)
            if not COMMON.match(name)}


# ------------------------------------------------------------------ here

def run_program(name, *arguments, **variables):
    command = [str(ROOT / "build" / "bin" / f"nimble-{name}"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True,
                          env={**os.environ, "NIMBLE_CONFIG": "off", **variables})
    if done.returncode != 0:
        raise ExperimentError(f"{' '.join(command)}: {batch.one_line(done.stderr)}", FAILURE)
    return done


def pack(folder, work, model, most, target):
    """Packs a campaign of the model's kernels, `most` drawn candidates of each beside its default
    schedule, and the programs that measure it."""
    out = folder / FOLDER
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    keys = work / KEYS
    if not (keys / f"{KEY}.key").exists():
        run_program("keys", "new", KEY, NIMBLE_KEYS=str(keys))
    (work / "lengths.tsv").write_text("n\n" + "\n".join(LENGTHS) + "\n")
    done = run_program("campaigns", "pack", model.source(work), "--db", out / DATABASE,
                       "--target", target, "--key", KEY, "--candidates", most, "--fix", "b=1",
                       "--trace", f"{work / 'lengths.tsv'}:n", *model.options,
                       NIMBLE_KEYS=str(keys))
    # The public half alone: what the machine there is to trust.
    shutil.copy(keys / "trusted_keys", out / "trusted_keys")
    for name in PROGRAMS:
        program = ROOT / "build" / "bin" / name
        shutil.copy(program, out / name)
        for library, file in libraries_of(program).items():
            if not (folder / library).exists():
                shutil.copy(file, folder / library)
    (out / "tuning.json").write_text(json.dumps(
        {"campaign": done.stdout.strip(), "model": model.name,
         "jobs_for": f"any GPU of {target}"}))
    print(f"gpu-check: a campaign: {batch.one_line(done.stderr)}", file=sys.stderr)


# ------------------------------------------------------------------ there

def environment(folder, out):
    """What the worker runs with. It trusts only lists that nobody else may write, and a folder that
    was carried here may have any permissions."""
    keys = out / "gpu-tuning-keys"
    shutil.rmtree(keys, ignore_errors=True)
    keys.mkdir(mode=0o700)
    shutil.copyfile(folder / FOLDER / "trusted_keys", keys / "trusted_keys")
    (keys / "trusted_keys").chmod(0o600)
    libraries = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH", "")])]
    return {**os.environ, "NIMBLE_KEYS": str(keys), "NIMBLE_CONFIG": "off",
            "LD_LIBRARY_PATH": ":".join(libraries)}


def run(folder, out, seconds):
    """Measures what is packed, for so many seconds at most, and returns what was found."""
    packed = json.loads((folder / FOLDER / "tuning.json").read_text())
    out.mkdir(parents=True, exist_ok=True)
    records = out / RECORDS
    for old in out.glob(f"{RECORDS}*"):  # with what SQLite writes beside it
        old.unlink()
    shutil.copyfile(folder / FOLDER / DATABASE, records)
    variables = environment(folder, out)
    programs = [folder / FOLDER / name for name in PROGRAMS]
    for program in programs:
        program.chmod(program.stat().st_mode | 0o700)
    command = [str(programs[1]), "--db", str(records), "--device", "gpu", "--jobs-for",
               packed["jobs_for"], "--max-idle", "0", "--format", "json"]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=variables)
    ended = "it was done"
    try:
        told, said = worker.communicate(timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        ended = "no time was left"
        worker.send_signal(signal.SIGTERM)  # the job at hand goes back
        try:
            told, said = worker.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            worker.kill()
            told, said = worker.communicate()
    finally:
        shutil.rmtree(pathlib.Path(variables["NIMBLE_KEYS"]), ignore_errors=True)
    found = {**packed, "ended": ended, "exit_code": worker.returncode}
    if worker.returncode not in (0, 130):
        found["failed"] = batch.one_line(said)[-500:]
    elif told.strip():
        found["worker"] = json.loads(told)
        # Such as code that this GPU does not run: the worker has done right, and measured nothing.
        passed = [one["reason"] for one in found["worker"].get("passed_over", [])]
        if passed:
            found["failed"] = batch.one_line("; ".join(passed))[-500:]
    try:
        found.update(summary(records))
    except sqlite3.Error as error:  # such as an SQLite that is older than the file's tables
        found.setdefault("failed", f"its records cannot be looked into here: {error}")
    return found


def summary(records):
    """What is in the database: how trials ended, and of each workload and size the best time."""
    connection = sqlite3.connect(records)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # one file is carried back
        connection.execute("PRAGMA journal_mode = DELETE")
        states = dict(connection.execute(
            "SELECT CASE error_class WHEN 'pruned' THEN 'pruned' ELSE state END AS ended, "
            "count(*) FROM trial GROUP BY ended ORDER BY ended"))
        rows = connection.execute(
            "SELECT w.op, w.hash, s.dims, t.role, t.median_ns, c.json FROM trial t "
            "JOIN workload w ON w.hash = t.workload JOIN shape s ON s.hash = t.shape "
            "JOIN config c ON c.hash = t.config WHERE t.state = 'ok'").fetchall()
    finally:
        connection.close()
    best, usual, kernels = {}, {}, {}
    for op, workload, dims, role, ns, config in rows:
        at = (workload, dims)
        kernels[at] = op
        if role == "baseline":
            usual[at] = ns
        if at not in best or ns < best[at][0]:
            best[at] = (ns, config)
    return {"states": states, "rows": [
        {"kernel": kernels[at], "workload": at[0][:12], "size": at[1], "ns": ns,
         "default_ns": usual.get(at), "config": json.loads(config)}
        for at, (ns, config) in sorted(best.items())]}


def is_whole(found):
    """Whether something was measured, and nothing kept the worker from it."""
    return bool(found.get("rows")) and "failed" not in found


def is_wrong(found):
    """Whether a default schedule, which is what models run untuned, has a wrong result. A drawn
    candidate that has one is a fault, too: templates make no wrong kernels."""
    return found.get("states", {}).get("wrong", 0) > 0


def lines(found):
    """The part of the page."""
    states = ", ".join(f"{count} {state}" for state, count in found.get("states", {}).items())
    out = ["## A tuning campaign", "",
           f"Of {found['model']}'s kernels, with the candidates packed: {states or 'no trials'}; "
           f"{found['ended']}. `nimble db import --db tuning.db {RECORDS}` merges the records.", ""]
    if "failed" in found:
        out += [f"Exit code {found['exit_code']} of the worker: {found['failed']}", ""]
    rows = found.get("rows", [])
    if rows:
        out += ["| kernel | size | default us | best us | of the default's |",
                "| --- | --- | --- | --- | --- |"]
    for row in rows[:MOST_LINES]:
        usual = row["default_ns"]
        out.append(f"| {row['kernel']} {row['workload']} | {row['size']} | "
                   f"{'' if usual is None else f'{usual / 1000:.1f}'} | {row['ns'] / 1000:.1f} | "
                   f"{'' if not usual else format(row['ns'] / usual, '.2f')} |")
    return [*out, ""]
