"""Detector heads: boxes of a feature map, the best of them, non-maximum suppression.

torchvision's nms is not an operator of PyTorch itself, so the model has one of its own with the same
meaning; each exporter is told to write ONNX's NonMaxSuppression for it, as torchvision tells them.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.exporters.catalogue import Entry, Input, always, floats, scripted, uniform


def overlap(one: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of a box (4) with boxes (n, 4), corners as x1 y1 x2 y2."""
    low = torch.maximum(one[:2], others[:, :2])
    high = torch.minimum(one[2:], others[:, 2:])
    shared = (high - low).clamp(min=0).prod(1)
    area = (one[2:] - one[:2]).prod()
    areas = (others[:, 2:] - others[:, :2]).prod(1)
    return shared / (area + areas - shared)


@torch.library.custom_op("exporters::nms", mutates_args=())
def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    order = scores.argsort(descending=True, stable=True)
    kept = []
    while order.numel():
        kept.append(order[0])
        rest = order[1:]
        order = rest[overlap(boxes[order[0]], boxes[rest]) <= threshold]
    return torch.stack(kept) if kept else torch.zeros(0, dtype=torch.int64)


@nms.register_fake
def _(boxes, scores, threshold):
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def register_torchscript():
    """Tells the exporter of TorchScript of the operator."""
    from torch.onnx import symbolic_helper

    @symbolic_helper.parse_args("v", "v", "f")
    def symbolic(g, boxes, scores, threshold):
        zero = g.op("Constant", value_t=torch.tensor([0]))
        boxes = g.op("Unsqueeze", boxes, zero)
        scores = g.op("Unsqueeze", scores, g.op("Constant", value_t=torch.tensor([0, 1])))
        found = g.op("NonMaxSuppression", boxes, scores,
                     g.op("Constant", value_t=torch.tensor([2 ** 63 - 1])),
                     g.op("Constant", value_t=torch.tensor([threshold], dtype=torch.float32)))
        two = g.op("Constant", value_t=torch.tensor([2]))
        column = g.op("Gather", found, two, axis_i=1)
        return g.op("Squeeze", column, g.op("Constant", value_t=torch.tensor([1])))

    torch.onnx.register_custom_op_symbolic("exporters::nms", symbolic, 17)


def translations():
    """Returns what the other exporter is told of the operator."""
    register_torchscript()
    from onnxscript import opset18 as op

    def translate(boxes, scores, threshold: float):
        found = op.NonMaxSuppression(
            op.Unsqueeze(boxes, op.Constant(value_ints=[0])),
            op.Unsqueeze(scores, op.Constant(value_ints=[0, 1])),
            op.Constant(value_ints=[2 ** 63 - 1]), op.Constant(value_floats=[threshold]))
        return op.Squeeze(op.Gather(found, op.Constant(value_ints=[2]), axis=1),
                          op.Constant(value_ints=[1]))

    return {torch.ops.exporters.nms.default: translate}


class Detector(nn.Module):
    """One feature map, anchors at its cells, boxes of the best hundred, suppression."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1),
                                  nn.ReLU())
        self.score, self.place = nn.Conv2d(8, 1, 1), nn.Conv2d(8, 4, 1)

    def forward(self, image):
        x = self.body(image)
        h, w = x.shape[2:]
        y, x0 = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        centre = (torch.stack([x0, y], dim=-1).reshape(-1, 2) + 0.5) * 4
        score = torch.sigmoid(self.score(x)).flatten()
        change = self.place(x)[0].flatten(1).T
        middle, size = centre + change[:, :2] * 4, 8 * torch.exp(change[:, 2:])
        boxes = torch.cat([middle - size / 2, middle + size / 2], dim=1)
        best, index = score.topk(12)
        boxes = boxes[index]
        kept = nms(boxes, best, 0.4)
        return boxes[kept], best[kept]


class Suppression(nn.Module):
    """All boxes above a score, suppressed by class: classes apart by an offset, as torchvision."""

    def forward(self, corners, sizes, scores, classes):
        chosen = torch.nonzero(scores > 0.3).squeeze(1)
        boxes = torch.cat([corners, corners + sizes], dim=1)[chosen]
        scores, classes = scores[chosen], (classes[chosen] * 3).long()
        apart = boxes + classes[:, None].float() * 4
        kept = nms(apart, scores, 0.5)
        return boxes[kept], scores[kept], classes[kept]


class ScriptedSuppression(nn.Module):
    """Suppression written out as a loop over boxes in the order of their scores."""

    def forward(self, corners: Tensor, sizes: Tensor, scores: Tensor):
        order = torch.argsort(scores, descending=True)
        boxes = torch.cat([corners, corners + sizes], dim=1)[order]
        alive = torch.ones(boxes.size(0), dtype=torch.bool)
        for i in range(boxes.size(0)):
            if bool(alive[i]):
                low = torch.maximum(boxes[i, :2], boxes[:, :2])
                high = torch.minimum(boxes[i, 2:], boxes[:, 2:])
                shared = torch.relu(high - low)
                area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
                both = shared[:, 0] * shared[:, 1]
                ratio = both / (area[i] + area - both)
                later = torch.arange(boxes.size(0)) > i
                alive = torch.logical_and(alive, torch.logical_not(
                    torch.logical_and(later, ratio > 0.4)))
        return boxes[alive]


class Decoder(nn.Module):
    """DETR's head: queries attend to a feature map, classes and boxes come out."""

    def __init__(self):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(1, 9, 16))
        self.inward = nn.Conv2d(3, 16, 4, stride=4)
        self.net = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True), 1)
        self.classes, self.boxes = nn.Linear(16, 5), nn.Linear(16, 4)

    def forward(self, image):
        memory = functional.relu(self.inward(image)).flatten(2).transpose(1, 2)
        x = self.net(self.queries.expand(image.size(0), -1, -1), memory)
        return self.classes(x).softmax(-1), self.boxes(x).sigmoid()


def entry(name, make, inputs, sizes, about, **more):
    return Entry(name, "detection", make, inputs, sizes, about, **more)


IMAGE = {"h": (16, 64), "w": (16, 64)}
BOXES = [Input("corners", ("n", 2), uniform), Input("sizes", ("n", 2), uniform),
         Input("scores", ("n",), uniform)]
MODELS = [
    entry("detector", always(Detector), [floats(1, 3, "h", "w", name="image")], IMAGE,
          "anchors, topk, nms", translations=translations),
    entry("suppression", always(Suppression), [*BOXES, Input("classes", ("n",), uniform)],
          {"n": (2, 40)}, "nms by class", translations=translations),
    entry("suppression-loop", scripted(ScriptedSuppression), BOXES, {"n": (2, 20)},
          "suppression as a loop"),
    entry("detr", always(Decoder), [floats("b", 3, "h", "w", name="image")],
          {"b": (1, 3), **IMAGE}, "queries attend to a feature map"),
]
