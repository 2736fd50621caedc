"""What the result file says about the machine and the command."""

import datetime
import os
import pathlib
import platform
import subprocess
import sys

from experiments.harness.experiment import ROOT

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8",
         "amx_bf16", "amx_fp16")


def cpu_fields():
    """Returns what /proc/cpuinfo says of the first core."""
    fields = {}
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    return fields


def flags():
    """Returns the CPU's features by Linux's names."""
    return set(cpu_fields().get("flags", "").split())


def describe(cores):
    """Returns the machine: CPU, features, caches, the cores used, memory, kernel, load."""
    known = flags()
    return {
        "cpu": cpu_fields().get("model name", platform.processor()),
        "features": [flag for flag in FLAGS if flag in known],
        "caches": caches(cores[0]),
        "cores": cores,
        "cores_available": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
    }


def caches(core):
    """Returns {"L1 Data": "48K", …} of a core."""
    result = {}
    folder = f"/sys/devices/system/cpu/cpu{core}/cache"
    for index in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if index.startswith("index"):
            level, kind, size = (
                pathlib.Path(folder, index, name).read_text(encoding="ascii").strip()
                for name in ("level", "type", "size"))
            result[f"L{level} {kind}"] = size
    return result


def provenance(arguments):
    """Returns when, from which commit and by which command a result was made."""
    def git(*words):
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None
    return {
        "command": " ".join(["experiments/run", *arguments]),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(git("status", "--porcelain", "--untracked-files=no")),
        "python": sys.version.split()[0],
    }


def choose_cores(threads):
    """Returns the first `threads` cores this process may use, as a sorted list."""
    return sorted(os.sched_getaffinity(0))[:threads]
