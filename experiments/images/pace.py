"""How a run divides its time: evenly over the networks, and inside each over tuning, what the peers
compile, and measuring. What a network leaves the next ones have."""

import time

TUNING = 0.3  # of a network's time, where the database has no table of it
COMPILING = 0.35  # of it, that a peer may compile for at most, each time
FEWEST_SIZES = 5  # that are measured, whatever they take
LEAST_SHARE = 120  # seconds of a network when those before it have taken all: none is left out


def clock_text(seconds):
    """Returns like 1:02:03."""
    seconds = max(0, int(seconds))
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


class Pace:
    """seconds: of the whole run, of which an interrupted one has spent some; networks: how many
    are left; measuring: that of the time all measuring may take at most (None: no bound), and what
    of it is spent."""

    def __init__(self, seconds, networks, spent=0.0, measuring=None, measured=0.0,
                 clock=time.monotonic):
        self.seconds, self.networks, self.clock = seconds, networks, clock
        self.spent_before, self.start = spent, clock()
        self.measuring, self.measured = measuring, measured
        self.measured_since = None
        self.begin()

    def spent(self):
        return self.spent_before + self.clock() - self.start

    def left(self):
        return max(0.0, self.seconds - self.spent())

    def begin(self):
        """Begins the next network."""
        self.share = max(LEAST_SHARE, self.left() / max(1, self.networks))
        self.end = self.clock() + self.share
        if self.measuring is not None:
            self.measuring_share = max(0.0, self.measuring - self.measured) / max(1, self.networks)

    def ended(self):
        """Ends a network."""
        self.stop_measuring()
        self.networks -= 1

    def exempt(self, seconds):
        """Counts no more what was asked for on top."""
        self.spent_before -= seconds
        self.end += seconds

    def tuning_seconds(self):
        return max(1, round(TUNING * self.share))

    def compile_seconds(self, most):
        return max(1, round(min(most, COMPILING * self.share)))

    def start_measuring(self):
        self.measured_since = self.clock()

    def pass_over(self, seconds):
        """Counts for no measuring what passed meanwhile."""
        self.measured_since += seconds

    def stop_measuring(self):
        if self.measured_since is not None:
            self.measured += self.clock() - self.measured_since
            self.measured_since = None

    def is_over(self, sizes):
        """Whether the network's time is, once so many sizes are measured."""
        if sizes < FEWEST_SIZES:
            return False
        if self.clock() >= self.end:
            return True
        return (self.measuring is not None
                and self.clock() - self.measured_since >= self.measuring_share)

    def left_text(self):
        return f"{clock_text(self.left())} left at most"
