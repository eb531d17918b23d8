"""Convolutions of networks for images, video and sound, and their gradients, beside cuDNN, in turns in one process, outputs
compared; one line of JSON a row, and the mean and the least of all ratios at the end.

    python bench/cuda/conv_rows.py [--part I/N] [--rounds N] [WORD...]    only rows whose names have one of the words

cuDNN chooses its fastest algorithm for images with channels last. "x cudnn" is its time divided by Tegula's, "differs" the
largest difference of the results by their largest value.
"""

import dataclasses
import math
import statistics

import tegula
import torch
from rivals import print_rows, rounds_of


@dataclasses.dataclass
class Layer:
    images: tuple  # batch, (depth,) height, width, channels
    features: int
    taps: int = 3
    stride: int = 1

    @property
    def rank(self):
        return len(self.images) - 2

    @property
    def padding(self):
        return self.taps // 2


LAYERS = {
    "128x56x56x128": Layer((128, 56, 56, 128), 128),
    "resnet 56x56x64": Layer((128, 56, 56, 64), 64),
    "resnet 28x28x256 stride 2": Layer((128, 56, 56, 128), 256, stride=2),
    "resnet 14x14x256": Layer((128, 14, 14, 256), 256),
    "vae 128x128x256": Layer((4, 128, 128, 256), 256),
    "video vae 16x64x64x256": Layer((1, 16, 64, 64, 256), 256),
    "whisper 3000x1280": Layer((16, 3000, 1280), 1280),
}


@dataclasses.dataclass
class Row:
    layer: str
    gradients: bool

    @property
    def name(self):
        return ("gradients of " if self.gradients else "") + self.layer


def rows():
    for layer in LAYERS:
        for gradients in (False, True):
            yield Row(layer, gradients)


RATIOS = {False: [], True: []}


def channels_second(tensor):
    return tensor.movedim(-1, 1)


def calls_of(row):
    """Tegula's call and cuDNN's, which return results with channels last."""
    layer = LAYERS[row.layer]
    rank, stride, padding = layer.rank, layer.stride, layer.padding
    x = torch.randn(layer.images, device="cuda", dtype=torch.bfloat16)
    shape = (layer.features, *[layer.taps] * rank, layer.images[-1])
    weight = torch.randn(shape, device="cuda", dtype=torch.bfloat16) / math.sqrt(math.prod(shape[1:]))
    options = [[stride] * rank, [padding] * rank, [1] * rank, False, [0] * rank, 1]
    theirs = [channels_second(x), channels_second(weight)]
    convolve = lambda: torch.ops.aten.convolution(*theirs, None, *options)
    if not row.gradients:
        own = getattr(tegula, f"conv{rank}d")
        return (lambda: [own(x, weight, stride=stride, padding=padding)], lambda: [convolve().movedim(1, -1)])
    dout = torch.randn_like(convolve().movedim(1, -1), memory_format=torch.contiguous_format)
    own = getattr(tegula, f"conv{rank}d_backward")
    gradient = lambda: torch.ops.aten.convolution_backward(channels_second(dout), *theirs, None, *options, [True, True, False])
    return (
        lambda: own(dout, x, weight, stride=stride, padding=padding)[:2],
        lambda: [result.movedim(1, -1) for result in gradient()[:2]],
    )


def measure(row, flush, rounds):
    own, cudnn = calls_of(row)
    differs = max(float((a.float() - b.float()).abs().max() / b.float().abs().max()) for a, b in zip(own(), cudnn()))
    own_times, cudnn_times = rounds_of([own, cudnn], flush, rounds)
    ratio = statistics.median(theirs / ours for ours, theirs in zip(own_times, cudnn_times))
    RATIOS[row.gradients].append(ratio)
    return {
        "row": row.name,
        "ms": statistics.median(own_times),
        "cudnn ms": statistics.median(cudnn_times),
        "x cudnn": ratio,
        "differs": differs,
    }


def summary(ratios):
    return {"mean": math.exp(statistics.fmean(map(math.log, ratios))), "least": min(ratios), "rows": len(ratios)}


if __name__ == "__main__":
    torch.backends.cudnn.benchmark = True
    print_rows(__doc__, rows(), measure)
    print({"gradients" if gradients else "forward": summary(r) for gradients, r in RATIOS.items() if r})
