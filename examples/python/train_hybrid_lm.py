"""Trains a small language model twice: with dense attention, and as a hybrid of three gated delta layers (Yang et al.,
2024) to each layer of native sparse attention (Yuan et al., 2025). Prints losses and tokens per second, and draws the
curves.

    python examples/python/train_hybrid_lm.py                     # on a GPU where there is one, or tiny models on a CPU
    python examples/python/train_hybrid_lm.py --out build/hybrid  # where curves.svg and losses.csv go
"""

import torch
from tegula.torch import GatedDeltaNet, NativeSparseAttention
from torch import nn
from train_nsa_lm import DenseAttention, Model, Norm, compare, feed_forward, parser_of


class HybridBlock(nn.Module):
    """A layer that mixes tokens, then one that works on each."""

    def __init__(self, config, number):
        super().__init__()
        self.before, self.between = Norm(config.width), Norm(config.width)
        if number % 4 == 3:
            self.mix = NativeSparseAttention(
                config.width, config.heads, config.kv_heads, block_size=config.block_size, count=config.blocks,
                length=config.block_size // 2, stride=config.block_size // 4, window=config.window,
            )  # fmt: skip
        else:
            self.mix = GatedDeltaNet(config.width, config.heads)
        self.feed = feed_forward(config.width)

    def forward(self, x):
        x = x + self.mix(self.before(x))
        return x + self.feed(self.between(x))


class Hybrid(nn.Module):
    """Predicts the next byte."""

    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(256, config.width)
        self.blocks = nn.Sequential(*(HybridBlock(config, number) for number in range(config.layers)))
        self.out = nn.Sequential(Norm(config.width), nn.Linear(config.width, 256))

    def forward(self, bytes_):
        return self.out(self.blocks(self.embed(bytes_)))


def main():
    parser = parser_of(__doc__, "build/hybrid_lm")
    parser.add_argument("--layers", type=int, default=8 if torch.cuda.is_available() else 4, help="a multiple of four")
    config = parser.parse_args()
    if config.layers % 4:
        parser.error("--layers must be a multiple of four")
    compare({"dense": lambda: Model(config, DenseAttention), "hybrid": lambda: Hybrid(config)}, config)


if __name__ == "__main__":
    main()
