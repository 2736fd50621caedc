"""Draws a network's weights and writes it as ONNX: `python -m experiments.images.export NAME
FOLDER`, in a process of its own, since exporters leave threads and gigabytes behind.

FOLDER/NAME.pt has the weights, so that PyTorch's processes hold the same bits; FOLDER/NAME.onnx is
the export by TorchScript's exporter, with height and width symbolic where the network takes any;
FOLDER/NAME.json says the name of the output and the operations of a run at OWN.
"""

import contextlib
import io
import json
import math
import pathlib
import sys

from experiments.images import networks

TOLERANCE = 1e-4  # of results; they are scaled to a standard deviation of 1
VERIFIED = ((160, 320), (231, 187))  # sizes beside OWN at which an export must agree
LEAST_EFFECT = 100 * TOLERANCE  # of another image on the result


def load(name, path):
    """Returns the module with the weights of the file, in inference mode."""
    import torch
    module = wrap(name)
    module.load_state_dict(torch.load(path, weights_only=True, mmap=True))
    return module.eval()


def wrap(name):
    """Returns the module with its input named as the exported one's."""
    from torch import nn

    class Named(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, image):
            return self.net(image)
    return Named(networks.make(name))


def tensor(size):
    import torch
    return torch.from_numpy(networks.inputs(size)[networks.INPUT])


def draw(module):
    """Draws weights under which activations keep their scale through all layers: no result is
    made of biases alone, infinite, or too small to show a mistake."""
    import torch
    from torch import nn

    from experiments.exporters import worker
    torch.manual_seed(worker.SEED)
    for part in module.modules():
        if isinstance(part, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    worker.stir(module)
    calibrate(module, tensor(networks.OWN))
    last = [part for part in module.modules() if isinstance(part, (nn.Conv2d, nn.Linear))][-1]
    deviation = module(tensor(networks.OWN)).std()
    for parameter in last.parameters():
        parameter /= deviation


def calibrate(module, image):
    """Sets the statistics of batch normalisation to those of an image."""
    from torch import nn
    normals = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    for part in normals:
        part.momentum = None  # the mean over all batches, of which there is one
        part.reset_running_stats()
        part.train()
    if normals:
        module(image)
    module.eval()


def check_parameters(name, module):
    count, wanted = sum(p.numel() for p in module.parameters()), networks.NETWORKS[name].parameters
    if count != wanted:
        raise RuntimeError(f"{name} has {count} weights instead of {wanted}")


def check_effect(name, module):
    """Raises where the result is not finite, or is hardly another one for another image."""
    import numpy as np
    one, other = (module(image).numpy() for image in (tensor(networks.OWN),
                                                      -tensor(networks.OWN)))
    effect = float(np.max(np.abs(one - other)))
    if not effect >= LEAST_EFFECT:  # NaN fails too
        raise RuntimeError(f"{name}: another image changes the result by {effect:.2g} only")


def count_flops(module):
    """Returns the operations of products and convolutions at OWN; a multiply-add is two."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode
    # The fused attention of the CPU is none of the operators that the counter knows.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        module(tensor(networks.OWN))
    return counter.get_total_flops()


def write_onnx(name, module, path):
    """Writes the export; returns the name of its output."""
    import onnx

    from experiments.exporters import worker
    from experiments.exporters.catalogue import TORCHSCRIPT, Entry, always, floats
    low, high = networks.LOWEST, networks.HIGHEST
    if networks.NETWORKS[name].any_size:
        dims, sizes = ("h", "w"), {"h": (low, high), "w": (low, high)}
    else:
        dims, sizes = networks.OWN, {}
    entry = Entry(name, "images", always(module), [floats(1, networks.CHANNELS, *dims,
                                                          name=networks.INPUT)], sizes, name)
    with contextlib.redirect_stdout(io.StringIO()):
        worker.export(entry, TORCHSCRIPT, module, str(path))
    return onnx.load(path).graph.output[0].name


def verify(name, module, path):
    """Raises where ONNX Runtime computes another result of the file than the module at a size."""
    import numpy as np
    import onnxruntime
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for size in (networks.OWN, *(VERIFIED if networks.NETWORKS[name].any_size else ())):
        found = session.run(None, networks.inputs(size))[0]
        wanted = module(tensor(size)).numpy()
        difference = (float(np.max(np.abs(found - wanted))) if found.shape == wanted.shape
                      else math.inf)
        if not difference <= TOLERANCE:
            raise RuntimeError(f"{name}: the export differs from the module at {size} by "
                               f"{difference:.2g}")


def main():
    import torch
    name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    path = folder / f"{name}.onnx"
    with torch.no_grad():
        module = wrap(name).eval()
        check_parameters(name, module)
        draw(module)
        check_effect(name, module)
        flops = count_flops(module)
        torch.save(module.state_dict(), folder / f"{name}.pt")
        output = write_onnx(name, module, path)
        verify(name, module, path)
    (folder / f"{name}.json").write_text(json.dumps({"output": output, "flops": flops}))


if __name__ == "__main__":
    main()
