"""The LSTM for TVM: nn.LSTM through torch.export and Relax's importer, and one step of a loop.

Relax has no loop: the caller's goes round the step.
"""

import torch

from experiments.lstm import model, weights


def make_fused(layers):
    from tvm.relax.frontend.torch import from_exported_program
    example = torch.from_numpy(weights.sequence(20))
    length = torch.export.Dim("n", min=2, max=512)
    with torch.no_grad():
        program = torch.export.export(model.make_module(layers), (example,),
                                      dynamic_shapes=({0: length},))
    return from_exported_program(program, unwrap_unit_return_tuple=True)


class Step(torch.nn.Module):
    """xt (1, 300) and each layer's h and c (1, 512) → those after the step."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers
        for layer, values in enumerate(weights.by_layer(layers)):
            for name, value in zip(("w_ih", "w_hh", "b_ih", "b_hh"), values):
                self.register_buffer(f"{name}_{layer}", torch.from_numpy(value))

    def forward(self, x, *states):
        linear, after = torch.nn.functional.linear, []
        for layer in range(self.layers):
            w_ih, w_hh, b_ih, b_hh = (self.get_buffer(f"{name}_{layer}")
                                      for name in ("w_ih", "w_hh", "b_ih", "b_hh"))
            h, c = states[2 * layer:2 * layer + 2]
            i, f, g, o = (linear(x, w_ih, b_ih) + linear(h, w_hh, b_hh)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            x = torch.sigmoid(o) * torch.tanh(c)
            after += [x, c]
        return tuple(after)


def make_step(layers):
    from tvm.relax.frontend.torch import from_exported_program
    state = torch.zeros(1, weights.HIDDEN)
    with torch.no_grad():
        program = torch.export.export(Step(layers).eval(), (
            torch.zeros(1, weights.INPUT), *[state.clone() for _ in range(2 * layers)]))
    return from_exported_program(program)


def drive_steps(layers, machine):
    """Returns x (n, 1, 300) → y (n, 1, 512) as a loop over the steps."""
    import numpy as np
    import tvm
    step, zero = machine["main"], tvm.runtime.tensor(np.zeros((1, weights.HIDDEN), np.float32))

    def run(x):
        source = x.numpy()
        y = np.empty((len(source), 1, weights.HIDDEN), np.float32)
        states = [zero] * (2 * layers)
        for index, row in enumerate(source):
            states = list(step(tvm.runtime.tensor(row), *states))
            y[index] = states[-2].numpy()
        return tvm.runtime.tensor(y)

    return run
