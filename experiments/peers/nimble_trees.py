"""nimble on trees, through its C interface; the session checks and takes over every tree anew."""

from experiments.peers import nimble


class Peer(nimble.Peer):
    """See experiments/harness/worker.py for when which method is called."""

    def __init__(self, experiment, threads, options):
        super().__init__(experiment, threads, options)
        self.make_value = experiment.make_value

    def bind(self, inputs):
        model = self.session.model
        self.calls = [self.session.bind_values({"tree": self.make_value(model, tree)})
                      for tree in inputs["trees"]]

    def run(self):
        for call in self.calls:
            call.run()

    def output(self, name):
        import numpy
        return numpy.concatenate([call.outputs()[name].array() for call in self.calls])
