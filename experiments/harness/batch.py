"""Many small cases through a few processes: a crash or an endless case costs that case alone.

A worker is a process that answers each number of a case that arrives on its pipe with
`(number, *outcome)`, until None arrives. Where it dies or takes too long, the driver makes up the
outcome and starts another; so it does after an outcome that ends in a Last.
"""

import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import select
import subprocess
import time

from experiments.harness.experiment import ROOT


class Last:
    """What ends the outcome of a worker that is of no use for other cases."""


class Worker:
    def __init__(self, target, arguments):
        context = multiprocessing.get_context("fork")  # the cases need not be sent
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=target, args=(*arguments, theirs))
        self.process.start()
        theirs.close()
        self.number, self.since = None, 0.0

    def give(self, number):
        self.number, self.since = number, time.monotonic()
        self.pipe.send(number)

    def end(self):
        if self.number is None:
            self.pipe.send(None)
        else:
            self.process.kill()
        self.process.join()
        self.pipe.close()


def run_all(count, target, arguments, jobs, seconds, crashed, report):
    """Returns the outcomes of cases 0 … count - 1 by number.

    target(*arguments(i), pipe) is worker i. crashed(number, message, seconds) makes the outcome of
    a case whose worker died, or took more than `seconds`. report(outcomes) is called whenever
    there is a new one.
    """
    outcomes, waiting = {}, list(range(count - 1, -1, -1))
    workers = [None] * min(jobs, count)
    reported = 0
    try:
        while len(outcomes) < count:
            for i, worker in enumerate(workers):
                if waiting and (worker is None or worker.number is None):
                    if worker is None:
                        workers[i] = worker = Worker(target, arguments(i))
                    worker.give(waiting.pop())
            busy = {w.pipe: i for i, w in enumerate(workers) if w and w.number is not None}
            for pipe in multiprocessing.connection.wait(list(busy), timeout=1):
                worker = workers[busy[pipe]]
                try:
                    number, *outcome = pipe.recv()
                    if outcome and isinstance(outcome[-1], Last):
                        outcome.pop()
                        worker.end()  # kills it
                        workers[busy[pipe]] = None
                    outcomes[number], worker.number = outcome, None
                except (EOFError, ConnectionResetError):
                    worker.process.join()
                    outcomes[worker.number] = crashed(
                        worker.number, f"the run ended with {worker.process.exitcode}",
                        time.monotonic() - worker.since)
                    workers[busy[pipe]] = None
            for i, worker in enumerate(workers):
                if worker and worker.number is not None and \
                        time.monotonic() - worker.since > seconds:
                    outcomes[worker.number] = crashed(worker.number, f"no end within {seconds} s",
                                                      seconds)
                    worker.end()
                    workers[i] = None
            if len(outcomes) > reported:
                reported = len(outcomes)
                report(outcomes)
    finally:
        for worker in workers:
            if worker:
                worker.end()
    return outcomes


class CompilerDied(Exception):
    pass


class Compiler:
    """`nimble compile --batch -` on two pipes: starting costs nothing per case.

    `portable`: whether each kernel is compiled in the portable form too, as it is by default;
    `options`: more of the command's.
    """

    def __init__(self, log, seconds=60, portable=False, options=()):
        self.log = open(log, "ab")
        self.seconds = seconds
        self.portable = "on" if portable else "off"
        self.options = options
        self.process = None

    def compile(self, model, output, *knobs):
        """Returns the compiler's report of one model as a dict. `knobs`: texts of --knobs."""
        if self.process is None:
            self.process = subprocess.Popen(
                [str(ROOT / "build" / "bin" / "nimble-compile"), "--batch", "-", "--portable",
                 self.portable, "--jobs", "1", "--crash-dir", "", *self.options],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
        try:
            self.process.stdin.write(("\t".join([str(model), str(output), *knobs]) + "\n").encode())
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], self.seconds)
            line = self.process.stdout.readline() if ready else b""
        except BrokenPipeError:
            line, ready = b"", True
        if line:
            return json.loads(line)
        self.process.kill()
        code = self.process.wait()
        self.process = None
        raise CompilerDied(f"the compiler ended with {code}: {self.last_words()}" if ready else
                           f"the compiler took more than {self.seconds} s")

    def processor_seconds(self):
        """Returns the time that the compiler has computed so far, which other work on the machine
        hardly changes."""
        if self.process is None:
            return 0.0
        text = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()  # from the third on: the name may have blanks
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def last_words(self):
        with open(self.log.name, "rb") as file:
            lines = file.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def one_line(text):
    return " ".join(str(text).split())
