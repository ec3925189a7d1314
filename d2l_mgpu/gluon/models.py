"""The two networks of the book in MXNet: LeNet from raw arrays, and a ResNet-18 of
Gluon blocks."""

from collections.abc import Sequence

from mxnet import gluon, np, npx
from mxnet.gluon import nn

from d2l_mgpu import models
from d2l_mgpu.gluon.data import from_torch
from d2l_mgpu.models import LENET_SHAPES

__all__ = ["LENET_SHAPES", "Residual", "lenet", "lenet_params", "loss", "resnet18"]


def lenet_params(std: float | None = None, seed: int = 0) -> list[np.ndarray]:
    """Return LeNet's parameters W1, b1, ..., W4, b4 (float32, on `mx.cpu(0)`, 129,068
    numbers).

    They are the numbers that PyTorch draws, so that both frameworks can be compared;
    `std` and `seed` are those of `d2l_mgpu.lenet_params`.
    """
    return [from_torch(p) for p in models.lenet_params(std, seed)]


def convolve(X: np.ndarray, W: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Convolve images with W (out channels, in channels, height, width) and add b, then
    ReLU and 2x2 average pooling."""
    Y = npx.convolution(X, W, b, kernel=W.shape[2:], num_filter=len(W))
    return npx.pooling(npx.relu(Y), kernel=(2, 2), stride=(2, 2), pool_type="avg")


def lenet(X: np.ndarray, params: Sequence[np.ndarray]) -> np.ndarray:
    """Apply LeNet to images `X` of shape (n, 1, 28, 28), n > 0; return logits of shape
    (n, 10)."""
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    h1 = convolve(X, W1, b1)  # (n, 20, 13, 13)
    h2 = convolve(h1, W2, b2)  # (n, 50, 4, 4)
    h3 = npx.relu(h2.reshape(len(X), -1) @ W3 + b3)  # (n, 128)
    return h3 @ W4 + b4


def loss(logits: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Cross-entropy of logits (n, classes) against labels (n,): n values, one per
    example.

    MXNet does not check labels: one that is out of range counts as the nearest class.
    """
    # Not npx.log_softmax: in float32 it is ten times less exact than rounding allows
    shifted = logits - logits.max(axis=1, keepdims=True)  # exp cannot overflow
    return np.log(np.exp(shifted).sum(axis=1)) - npx.pick(shifted, y)


class Residual(nn.Block):
    """Two 3x3 convolutions beside a shortcut: (n, in, h, w) to (n, out, h/stride,
    w/stride).

    The shortcut is the input itself where the shape stays, and a 1x1 convolution where
    it changes (He et al., 2016).
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2D(
            out_channels, 3, stride, padding=1, in_channels=in_channels
        )
        self.conv2 = nn.Conv2D(out_channels, 3, padding=1, in_channels=out_channels)
        same_shape = stride == 1 and in_channels == out_channels
        self.shortcut = (
            gluon.contrib.nn.Identity()
            if same_shape
            else nn.Conv2D(out_channels, 1, stride, in_channels=in_channels)
        )
        self.bn1 = nn.BatchNorm()
        self.bn2 = nn.BatchNorm()

    def forward(self, X: np.ndarray) -> np.ndarray:
        Y = npx.relu(self.bn1(self.conv1(X)))
        return npx.relu(self.bn2(self.conv2(Y)) + self.shortcut(X))


def resnet18(num_classes: int, in_channels: int = 1) -> nn.Sequential:
    """Return a ResNet-18 for small images: a 3x3 stem of stride 1 and no max pooling.

    Images (n, in_channels, h, w) become logits (n, num_classes), by the same layers in
    the same order as in PyTorch. The convolutions know their sizes; BatchNorm and the
    dense layer learn theirs from the first data, and have no parameters before
    (`in_channels=0`: nor has the stem).
    """

    def stage(in_channels: int, out_channels: int, stride: int) -> nn.Sequential:
        blocks = nn.Sequential()
        blocks.add(
            Residual(in_channels, out_channels, stride),
            Residual(out_channels, out_channels),
        )
        return blocks

    net = nn.Sequential()
    net.add(
        nn.Conv2D(64, 3, padding=1, in_channels=in_channels),
        nn.BatchNorm(),
        nn.Activation("relu"),
        stage(64, 64, stride=1),
        stage(64, 128, stride=2),
        stage(128, 256, stride=2),
        stage(256, 512, stride=2),
        nn.GlobalAvgPool2D(),
        nn.Flatten(),
        nn.Dense(num_classes),
    )
    return net
