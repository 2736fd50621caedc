"""One system in a process of its own: `python -m experiments.harness.worker` (see pool.py).

Reads requests from a pipe, answers each, and otherwise does nothing. Between requests the driver
stops the whole process, so nothing here needs to be quiet when idle.
"""

import ctypes
import gc
import importlib
import json
import multiprocessing.connection
import os
import signal
import sys
import time
import traceback

PR_SET_PDEATHSIG = 1


class Server:
    """Serves one peer: load it, bind the inputs of a length, run it in timed bursts."""

    def __init__(self, options):
        from experiments.harness import experiment
        self.experiment = experiment.load(options["experiment"])
        module = importlib.import_module(f"experiments.peers.{options['module']}")
        self.peer = module.Peer(self.experiment, options["threads"], options)
        self.length = None

    def bind(self, length):
        if length != self.length:
            self.peer.bind(self.experiment.inputs(length))
            self.length = length

    def info(self):
        """Returns what the result file records about the system."""
        return {"version": self.peer.version(), "settings": self.peer.settings()}

    def check(self, length):
        """Returns the compared output at `length`."""
        self.bind(length)
        self.peer.run()
        return self.peer.output(self.experiment.output)

    def burst(self, length, warm, runs):
        """Runs `warm` times, then `runs` times; returns the wall time of each of the latter in ns.
        The garbage collector sleeps meanwhile."""
        self.bind(length)
        run, clock = self.peer.run, time.perf_counter_ns
        gc.disable()
        try:
            for _ in range(warm):
                run()
            times = []
            for _ in range(runs):
                start = clock()
                run()
                times.append(clock() - start)
        finally:
            gc.enable()
        return times


def make_server(options):
    """Returns what answers: a Server, or that of the module `server` of the options."""
    module = options.get("server")
    return (importlib.import_module(module) if module else sys.modules[__name__]).Server(options)


def die_with_parent():
    """A stopped process would outlive a killed driver for ever; SIGKILL reaches stopped ones,
    too."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main():
    die_with_parent()
    options = json.loads(sys.argv[1])
    os.sched_setaffinity(0, options["cores"])
    with multiprocessing.connection.Connection(options["fd"]) as pipe:
        try:
            server = make_server(options)
            pipe.send(("ok", None))
            while True:
                method, *arguments = pipe.recv()
                pipe.send(("ok", getattr(server, method)(*arguments)))
        except EOFError:
            return
        except BaseException as error:  # the driver turns it into its own one-line error
            traceback.print_exc()
            first_line = (str(error).splitlines() or [""])[0]
            pipe.send(("error", f"{type(error).__name__}: {first_line}"))


if __name__ == "__main__":
    main()
