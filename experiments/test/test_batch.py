"""Cases through worker processes (experiments/harness/batch.py)."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.harness import batch  # noqa: E402


def answer(pipe):
    """A worker: case 2 kills it, case 4 is its last one."""
    while (number := pipe.recv()) is not None:
        if number == 2:
            os._exit(7)
        pipe.send((number, os.getpid(), *([batch.Last()] if number == 4 else [])))


class RunAll(unittest.TestCase):
    def test_a_worker_that_dies_or_gives_up_is_replaced(self):
        outcomes = batch.run_all(7, answer, lambda _: (), 1, 60,
                                 lambda number, message, seconds: [message], lambda _: None)
        self.assertEqual(sorted(outcomes), list(range(7)))
        self.assertEqual(outcomes[2], ["the run ended with 7"])
        processes = [outcomes[n][0] for n in (0, 1, 3, 4, 5, 6)]
        self.assertEqual(processes[0], processes[1])
        self.assertEqual(processes[2], processes[3])
        self.assertEqual(processes[4], processes[5])
        self.assertEqual(len(set(processes)), 3)
        self.assertTrue(all(len(outcome) == 1 for outcome in outcomes.values()))


if __name__ == "__main__":
    unittest.main()
