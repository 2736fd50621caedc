"""One executable in a process of its own, as experiments/harness/worker.py has them: inputs are
drawn by the model's own signature, and a profile can be asked for."""

from experiments.harness import worker
from experiments.memory_study.probe import draw


class Server(worker.Server):
    def __init__(self, options):
        from experiments.peers import nimble
        self.peer = nimble.Peer(None, options["threads"], options)
        self.model = self.peer.session.model
        self.length = None

    def bind(self, length):
        if length != self.length:
            sizes = {"b": 1, "n": length}
            self.peer.bind({port.name: draw(port, sizes) for port in self.model.inputs})
            self.length = length

    def check(self, length):
        """Returns the first output."""
        self.bind(length)
        self.peer.run()
        return self.peer.output(self.model.outputs[0].name)

    def profile(self, length, runs):
        """Returns the profile of so many runs."""
        self.bind(length)
        return self.peer.profile(runs)
