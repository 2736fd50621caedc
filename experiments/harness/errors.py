"""Errors that end an experiment, with nimble's exit codes."""

FAILURE, USAGE, WRONG_RESULT, INTERRUPTED = 1, 2, 3, 130


class ExperimentError(Exception):
    """A one-line message that names the place and the remedy, and the exit code to end with."""

    def __init__(self, message, code=FAILURE):
        super().__init__(message)
        self.code = code
