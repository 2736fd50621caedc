"""The virtual environments of the peers; standard library alone, for experiments/run imports it.

Most peers share one environment, .venv-experiments at the repository's root, which the driver runs
in, too. A peer whose packages don't agree with the others' has one of its own: a file
experiments/environments/NAME.txt with its pinned packages makes .venv-experiments-NAME, and the
peer's row in systems.py names it. An environment is made on first use and again when its pins
change.
"""

import fcntl
import hashlib
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN = ROOT / "experiments" / "environments"  # one file an environment beside the common one
COMMON_REQUIREMENTS = ROOT / "experiments" / "requirements.txt"
TORCH = "torch==2.15.0"
# PyTorch's own index has builds without CUDA, which are a tenth of the size; where only PyPI can
# be reached, its build gives the same CPU kernels.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


class SetupError(Exception):
    """An environment that can't be made; the message names the remedy."""


def names():
    """Returns the names of the environments of single peers."""
    return sorted(path.stem for path in OWN.glob("*.txt"))


def folder(name=None):
    """Returns where the environment of this name, or the common one, lies."""
    return ROOT / (f".venv-experiments-{name}" if name else ".venv-experiments")


def python(name=None):
    return folder(name) / "bin" / "python"


def wanted(name=None):
    """Returns the digest of what the environment has to hold."""
    text = (OWN / f"{name}.txt").read_text() if name else TORCH + COMMON_REQUIREMENTS.read_text()
    return hashlib.sha256(text.encode()).hexdigest()


def is_made(name=None):
    stamp = folder(name) / "requirements.sha256"
    return stamp.exists() and stamp.read_text() == wanted(name)


def find_python():
    """Returns a Python 3.11 to make environments with."""
    if sys.version_info[:2] == (3, 11):
        return sys.executable
    found = shutil.which("python3.11")
    if found is None:
        raise SetupError(f"needs Python 3.11, this is {sys.version.split()[0]}; install "
                         "python3.11 and its venv module (Debian 12: apt install python3-venv)")
    return found


def make(name=None):
    """Installs the pinned packages unless the environment already holds exactly these. Two at once
    would break each other's: the second one waits."""
    if is_made(name):
        return
    with open(ROOT / ".venv-experiments.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_made(name):
            install(name)


def install(name):
    where = folder(name)
    print(f"experiments/run: installing {name or 'the peers'} into {where} (some minutes, once)",
          file=sys.stderr)
    pip = [str(python(name)), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    try:
        if not python(name).exists():
            subprocess.run([find_python(), "-m", "venv", str(where)], check=True)
        if name:
            packages = ["-r", str(OWN / f"{name}.txt")]
        else:
            cpu_only = subprocess.run(
                pip + ["--retries", "0", "--index-url", TORCH_CPU_INDEX, TORCH],
                stderr=subprocess.DEVNULL)
            if cpu_only.returncode != 0:
                print("experiments/run: PyTorch's CPU index can't be reached; taking PyPI's build "
                      "(6 GB on disk)", file=sys.stderr)
            packages = [TORCH, "-r", str(COMMON_REQUIREMENTS)]
        subprocess.run(pip + packages, check=True, stdout=sys.stderr)
    except subprocess.CalledProcessError as error:
        raise SetupError(f"{' '.join(map(str, error.cmd))} failed; see its message above, then run "
                         f"again (rm -r {where} starts over)") from None
    (where / "requirements.sha256").write_text(wanted(name))
