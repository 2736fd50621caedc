"""One executable in a process of its own, as experiments/roofline/worker.py has them, at a shape."""

from experiments.memory_study.probe import draw
from experiments.roofline import worker


class Server(worker.Server):
    """Shapes are ((symbol, extent), …)."""

    def bind(self, shape):
        if shape != self.length:
            sizes = dict(shape)
            self.peer.bind({port.name: draw(port, sizes) for port in self.model.inputs})
            self.length = shape
