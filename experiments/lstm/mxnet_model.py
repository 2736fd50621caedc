"""The LSTM in MXNet's Gluon: by its fused layer, and as a loop over time steps."""

import mxnet as mx

from experiments.lstm import weights


class Loop(mx.gluon.HybridBlock):
    """x (n, 1, 300) → y (n, 1, 512): a cell a layer, each in a `foreach` over the steps."""

    def __init__(self, layers):
        super().__init__()
        with self.name_scope():
            self.cells = [mx.gluon.rnn.LSTMCell(
                weights.HIDDEN, input_size=weights.HIDDEN if layer else weights.INPUT)
                for layer in range(layers)]
            for cell in self.cells:
                self.register_child(cell)

    def hybrid_forward(self, F, x):
        for cell in self.cells:
            x, _ = F.contrib.foreach(cell, x, [F.zeros((1, weights.HIDDEN)) for _ in "hc"])
        return x


def fill(parameters, values):
    """Sets the parameters i2h and h2h of a layer; gates have PyTorch's order."""
    for name, value in zip(("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias"), values):
        parameters[name].set_data(mx.nd.array(value))


def make_fused(layers):
    net = mx.gluon.rnn.LSTM(weights.HIDDEN, layers, input_size=weights.INPUT)
    net.initialize()
    for layer, values in enumerate(weights.by_layer(layers)):
        fill({name: getattr(net, f"l{layer}_{name}")
              for name in ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias")}, values)
    net.hybridize()
    return lambda x: net(x)


def make_loop(layers):
    net = Loop(layers)
    net.initialize()
    for cell, values in zip(net.cells, weights.by_layer(layers)):
        fill({name: getattr(cell, name)
              for name in ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias")}, values)
    net.hybridize()
    return lambda x: net(x)
