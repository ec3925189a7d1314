"""The two networks of the book: LeNet from raw tensors, and a ResNet-18 for small
images."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from d2l_mgpu.arguments import integer, not_negative

# Shapes: convolutions are (out channels, in channels, height, width), dense layers (in,
# out).
LENET_SHAPES = [
    (20, 1, 3, 3),
    (20,),
    (50, 20, 5, 5),
    (50,),
    (800, 128),
    (128,),
    (128, 10),
    (10,),
]


def lenet_params(std: float | None = None, seed: int = 0) -> list[Tensor]:
    """Return LeNet's parameters W1, b1, ..., W4, b4 (float32, on the CPU, 129,068
    numbers).

    Weights are drawn from N(0, std^2), biases are 0. `std=0.01` is the start that D2L
    publishes; `None` gives each layer sqrt(2 / fan_in), which keeps signals alive (He
    et al., 2015).
    """
    generator = torch.Generator().manual_seed(integer("seed", seed, least=0))
    params = []
    for shape in LENET_SHAPES:
        if len(shape) == 1:
            params.append(torch.zeros(shape))
            continue
        fan_in = shape[0] if len(shape) == 2 else shape[1] * shape[2] * shape[3]
        scale = (2 / fan_in) ** 0.5 if std is None else not_negative("std", std)
        params.append(torch.randn(shape, generator=generator) * scale)
    return params


def lenet(X: Tensor, params: Sequence[Tensor]) -> Tensor:
    """Apply LeNet to images `X`, shape (n, 1, 28, 28); return logits, shape (n, 10)."""
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    h1 = F.avg_pool2d(F.relu(F.conv2d(X, W1, b1)), kernel_size=2)  # (n, 20, 13, 13)
    h2 = F.avg_pool2d(F.relu(F.conv2d(h1, W2, b2)), kernel_size=2)  # (n, 50, 4, 4)
    h3 = F.relu(h2.flatten(start_dim=1) @ W3 + b3)  # (n, 128)
    return h3 @ W4 + b4


def convolution(h: Tensor, W: Tensor, b: Tensor) -> Tensor:
    """LeNet's first two layers: (n, in, height, width) to (n, out, smaller,
    smaller)."""
    return F.avg_pool2d(F.relu(F.conv2d(h, W, b)), kernel_size=2)


def dense(h: Tensor, W: Tensor, b: Tensor) -> Tensor:
    """LeNet's third layer: (n, ...) to (n, out)."""
    return F.relu(h.flatten(start_dim=1) @ W + b)


def output(h: Tensor, W: Tensor, b: Tensor) -> Tensor:
    """LeNet's last layer: (n, in) to logits (n, out)."""
    return h @ W + b


LAYERS = [convolution, convolution, dense, output]  # one after another, they are LeNet


def loss(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of logits (n, classes) and labels (n,): one value per example."""
    return F.cross_entropy(logits, y, reduction="none")


class Residual(nn.Module):
    """Two 3x3 convolutions beside a shortcut: (n, in, h, w) to (n, out, h/stride,
    w/stride).

    The shortcut is the input itself where the shape stays, and a 1x1 convolution where
    it changes (He et al., 2016).
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(
            in_channels, out_channels, kernel_size=3, padding=1, stride=stride
        )
        self.conv2 = nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1)
        same_shape = stride == 1 and in_channels == out_channels
        self.shortcut = (
            nn.Identity()
            if same_shape
            else nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=stride)
        )
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.bn2 = nn.BatchNorm2d(out_channels)

    def forward(self, X: Tensor) -> Tensor:
        Y = F.relu(self.bn1(self.conv1(X)))
        return F.relu(self.bn2(self.conv2(Y)) + self.shortcut(X))


def resnet18(num_classes: int, in_channels: int = 1) -> nn.Sequential:
    """Return a ResNet-18 for small images: a 3x3 stem of stride 1 and no max pooling.

    Images (n, in_channels, h, w) become logits (n, num_classes); 11,175,818 parameters
    for ten classes and one channel. All layers know their sizes, so none is created
    lazily.
    """

    def stage(in_channels: int, out_channels: int, stride: int) -> nn.Sequential:
        return nn.Sequential(
            Residual(in_channels, out_channels, stride),
            Residual(out_channels, out_channels),
        )

    return nn.Sequential(
        nn.Conv2d(in_channels, 64, kernel_size=3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        stage(64, 64, stride=1),
        stage(64, 128, stride=2),
        stage(128, 256, stride=2),
        stage(256, 512, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, num_classes),
    )


class LeNet(nn.Module):
    """`lenet` as a module: the same function of the same eight parameters."""

    def __init__(self, std: float | None = None, seed: int = 0) -> None:
        super().__init__()
        self.std, self.seed = std, seed
        self.params = nn.ParameterList(lenet_params(std, seed))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start afresh from the `std` and the `seed` that this LeNet was made with."""
        for p, start in zip(
            self.params, lenet_params(self.std, self.seed), strict=True
        ):
            p.copy_(start)

    def forward(self, X: Tensor) -> Tensor:
        return lenet(X, list(self.params))
