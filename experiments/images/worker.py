"""One system on one network, as experiments/harness/worker.py has them; sizes stand for lengths."""

import functools
import importlib
import types

from experiments.harness import worker
from experiments.images import networks


def make_module(name, path):
    from experiments.images import export
    return export.load(name, path)


class Server(worker.Server):
    """Sizes are (height, width)."""

    def __init__(self, options):
        self.experiment = types.SimpleNamespace(
            inputs=networks.inputs, output=options["output"],
            make_module=functools.partial(make_module, options["network"], options["weights"]))
        module = importlib.import_module(f"experiments.peers.{options['module']}")
        self.peer = module.Peer(self.experiment, options["threads"], options)
        self.length = None

    def outputs(self, size, count):
        """Returns the results of so many images: (count, classes)."""
        import numpy as np
        found = []
        for number in range(1, count + 1):
            self.peer.bind(networks.inputs(size, number))
            self.peer.run()
            found.append(np.array(self.peer.output(self.experiment.output), np.float64).reshape(-1))
        self.length = None  # another image is bound now
        return np.stack(found)

    def profile(self, size, runs):
        """Returns nimble's profile of so many runs."""
        self.bind(size)
        return self.peer.profile(runs)
