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

    def profile(self, size, runs):
        """Returns nimble's profile of so many runs."""
        self.bind(size)
        return self.peer.profile(runs)
