"""One system in a process of its own that can also be asked for sentences' embeddings."""

import numpy as np

from experiments.harness import worker
from experiments.precision import similarity


class Server(worker.Server):
    def embed(self, number):
        """Returns the outputs for the sentences of similarity.pairs(number): (pairs, 2, width)."""
        found = []
        for pair in similarity.pairs(number):
            for sentence in pair:
                self.peer.bind(similarity.inputs(sentence))
                self.peer.run()
                found.append(np.array(self.peer.output(self.experiment.output),
                                      np.float64).reshape(-1))
        self.length = None  # other inputs are bound now
        return np.stack(found).reshape(-1, 2, len(found[0]))
