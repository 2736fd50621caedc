"""Builds DyNet from PyPI's source package, once, and the driver that experiments call.

    python -m experiments.peers.dynet_build

No wheel of it fits Python 3.11, and a wheel would not be built for this CPU: its own release flags,
with -march=native, on Debian's Eigen (libeigen3-dev) make it as fast as it gets. The library is
built without its Python bindings; it lies in build/experiments/dynet.
"""

import hashlib
import pathlib
import shutil
import subprocess
import sys
import tarfile

from experiments.harness.errors import ExperimentError
from experiments.harness.experiment import BUILD

VERSION = "2.1.2"
EIGEN = pathlib.Path("/usr/include/eigen3")
DRIVER = pathlib.Path(__file__).with_name("dynet_tree_lstm.cpp")
WHERE = BUILD / "dynet"


def run(command, log):
    with open(WHERE / "build.log", "ab") as file:
        done = subprocess.run([str(part) for part in command], stdout=file, stderr=file)
    if done.returncode != 0:
        raise ExperimentError(f"DyNet: {log} failed; see {WHERE / 'build.log'}, or leave it out "
                              "with --peers")


def library():
    """Returns the driver's shared library and builds what is missing of it: half an hour of CPU
    time at first."""
    target = WHERE / "libtree-lstm.so"
    digest = hashlib.sha256(DRIVER.read_bytes() + pathlib.Path(__file__).read_bytes()).hexdigest()
    stamp = WHERE / "driver.sha256"
    if target.exists() and stamp.exists() and stamp.read_text() == digest:
        return target
    if not (EIGEN / "unsupported" / "Eigen" / "CXX11" / "Tensor").exists():
        raise ExperimentError("DyNet needs Eigen; install libeigen3-dev, or leave DyNet out with "
                              "--peers")
    WHERE.mkdir(parents=True, exist_ok=True)
    source, build = WHERE / f"dyNET-{VERSION}", WHERE / "build"
    print("DyNet: building it from source (half an hour of CPU time, once)", file=sys.stderr)
    if not source.exists():
        run([sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "dyNET", "--dest",
             WHERE, f"dyNET=={VERSION}"], "the download")
        with tarfile.open(WHERE / f"dyNET-{VERSION}.tar.gz") as archive:
            archive.extractall(WHERE, filter="data")
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    run(["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         "-DCMAKE_POLICY_VERSION_MINIMUM=3.5", f"-DEIGEN3_INCLUDE_DIR={EIGEN}", *launcher],
        "the configuration")
    run(["cmake", "--build", build, "--target", "dynet"], "the build")
    libraries = build / "dynet"
    run(["c++", "-std=c++17", "-O3", "-DNDEBUG", "-march=native", "-fPIC", "-shared", f"-I{source}", f"-I{EIGEN}",
         DRIVER, f"-L{libraries}", "-ldynet", f"-Wl,-rpath,{libraries}", "-o", target], "the driver")
    stamp.write_text(digest)
    return target


if __name__ == "__main__":
    print(library())
