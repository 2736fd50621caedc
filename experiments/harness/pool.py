"""The driver's side of the workers: one process a system, of which only one ever runs.

Why processes: ONNX Runtime, OpenMP and TBB keep pools whose idle threads spin for milliseconds, and
spinning helps the system that owns them while it disturbs the next one that is measured. In one
process the choice would be to disturb or to switch spinning off, at the peers' expense. So every
system lives in its own process, and the driver stops (SIGSTOP) all but the one it is talking to:
pools keep their default, fastest behaviour inside a burst, and outside it take no cycle. All
workers share the same cores.
"""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

from experiments.harness import environments
from experiments.harness.errors import ExperimentError
from experiments.harness.experiment import BUILD, ROOT

LOAD_SECONDS = 900  # torch.compile builds C++ at its first lengths
REQUEST_SECONDS = 600


class Worker:
    """A running system; every method blocks until the worker has answered and stops it again."""

    def __init__(self, experiment, system, module, threads, cores, options, environment=None):
        self.system, self.cores = system, cores
        self.seconds = 0.0  # that it has run for
        logs = BUILD / experiment.name / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        self.log = logs / f"{system}-{threads}.log"
        ours, theirs = multiprocessing.Pipe()
        variables = dict(
            os.environ, PYTHONPATH=str(ROOT), OMP_NUM_THREADS=str(threads),
            MKL_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS="1",
            TORCHINDUCTOR_CACHE_DIR=str(BUILD / "inductor"), CUDA_VISIBLE_DEVICES="",
            TVM_NUM_THREADS=str(threads), TF_CPP_MIN_LOG_LEVEL="2", HF_HUB_OFFLINE="1",
            TOKENIZERS_PARALLELISM="false", OPENVINO_TELEMETRY="0")
        request = dict(options, experiment=experiment.name, module=module, threads=threads,
                       cores=cores, fd=theirs.fileno())
        python = str(environments.python(environment)) if environment else sys.executable
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [python, "-m", "experiments.harness.worker", json.dumps(request)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables,
                pass_fds=[theirs.fileno()], start_new_session=True)
        theirs.close()
        self.pipe = ours
        try:
            # A tuner of the system's own has its time on top.
            self._receive(LOAD_SECONDS + options.get("tvm_seconds", 0))
        except BaseException:
            self.close()
            raise

    def ask(self, method, *arguments, seconds=REQUEST_SECONDS):
        """Calls a method of worker.Server and returns its result."""
        self._signal(signal.SIGCONT)
        try:
            self.pipe.send((method, *arguments))
        except OSError:
            raise self._death() from None
        return self._receive(seconds)

    def confine(self):
        """Puts every thread of the worker on the experiment's cores; libraries that pin threads
        by themselves would otherwise leave them."""
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            try:
                if os.sched_getaffinity(int(thread)) - set(self.cores):
                    os.sched_setaffinity(int(thread), self.cores)
            except ProcessLookupError:
                pass  # a thread that ended meanwhile

    def close(self):
        self.process.kill()
        self.process.wait()
        self.pipe.close()

    def _receive(self, seconds):
        start = time.monotonic()
        deadline = start + seconds
        while not self.pipe.poll(0.2):
            if self.process.poll() is not None and not self.pipe.poll(0):
                raise self._death()
            if time.monotonic() > deadline:
                raise self._error(f"no answer for {seconds} s")
        try:
            status, value = self.pipe.recv()
        except (EOFError, ConnectionError):
            raise self._death() from None
        if status != "ok":
            raise self._error(value)
        self._signal(signal.SIGSTOP)
        self.seconds += time.monotonic() - start
        return value

    def _error(self, message):
        return ExperimentError(f"{self.system}: {message}; see {self.log}", system=self.system)

    def _signal(self, number):
        try:
            self.process.send_signal(number)
        except ProcessLookupError:
            pass  # its death is reported by the next receive

    def _death(self):
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            code = "unknown"
        return self._error(f"its process ended (status {code})")


class Pool:
    """All systems of one case; a context manager, so that no stopped process is left behind."""

    def __init__(self):
        self.workers = {}

    def start(self, system, *arguments):
        self.workers[system] = Worker(*arguments)

    def drop(self, system):
        """Ends a system that goes on no more."""
        self.workers.pop(system).close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for worker in self.workers.values():
            worker.close()
