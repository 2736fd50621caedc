"""Of several ways to run a model the one that is fastest on this machine: no peer is held to a
setting that its documentation leaves open."""

import time

LENGTH, RUNS = 53, 9  # tokens at which they are tried: MRPC's mean


def least_seconds(run):
    """Returns the seconds of the fastest run of some, behind one that warms up."""
    run()
    taken = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken)


class Trial:
    """Loads each of the variants in turn and leaves the fastest one loaded.

    variants: {name: argument of load}; load(argument): makes peer.bind and peer.run work with it. A
    variant that fails leaves the others; if all do, the last one's error is raised.
    """

    def __init__(self, peer, variants, load, inputs):
        self.seconds, self.failed = {}, {}
        for name, argument in variants.items():
            try:
                load(argument)
                peer.bind(inputs)
                self.seconds[name] = least_seconds(peer.run)
            except Exception as error:
                if name == list(variants)[-1] and not self.seconds:
                    raise
                self.failed[name] = type(error).__name__
        self.chosen = min(self.seconds, key=self.seconds.get)
        if self.chosen != list(variants)[-1]:
            load(variants[self.chosen])

    def text(self):
        tried = [f"{seconds * 1e3:.1f} ms {name}" for name, seconds in self.seconds.items()]
        tried += [f"{error} {name}" for name, error in self.failed.items()]
        return f"{self.chosen} (at {LENGTH} tokens {', '.join(tried)})"
