"""Errors that end an experiment, with nimble's exit codes."""

import signal
import sys

FAILURE, USAGE, WRONG_RESULT, INTERRUPTED = 1, 2, 3, 130


class ExperimentError(Exception):
    """A one-line message that names the place and the remedy, and the exit code to end with;
    where a system is to blame, its name."""

    def __init__(self, message, code=FAILURE, system=None):
        super().__init__(message)
        self.code, self.system = code, system


def exit_code(execute, interrupted="interrupted", program="experiments/run"):
    """Runs a program's `execute` (returns its exit code, or None for 0); prints what ends it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return execute() or 0
    except ExperimentError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print(f"\n{program}: {interrupted}", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return FAILURE
