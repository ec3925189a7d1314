"""An epoch done as the published multi-GPU chapters do it: what our own epochs are compared with.

Written from a description of *Dive into Deep Learning* (Zhang et al., 2023), with the same
operations in the same order and the same loader: torchvision turns every image into a tensor on
its own, four worker processes collect them into batches, and parameters are tensors that a Python
loop updates one by one. Only what was wrong is corrected: `allreduce` writes in place, replicas
are copies, a batch may be split on the CPU. (The book's errata say more.)
"""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from d2l_mgpu.data import Images
from d2l_mgpu.devices import synchronize

WORKERS = 4  # processes that load, also where there are fewer cores
warnings.filterwarnings("ignore", "This DataLoader will create")


class FashionMNIST(datasets.FashionMNIST):
    """torchvision's data set of `images` that are in memory already; it reads no file."""

    def __init__(self, images: Images) -> None:
        datasets.VisionDataset.__init__(self, root="", transform=transforms.ToTensor())
        self.data, self.targets = images.pixels, images.labels


def loader(images: Images, batch_size: int, *, shuffle: bool = True) -> DataLoader:
    """Batches X, float32 (n, 1, 28, 28) in 0..1, and y, int64 (n,), made image by image."""
    return DataLoader(FashionMNIST(images), batch_size, shuffle=shuffle, num_workers=WORKERS)


# From scratch: LeNet from tensors


def get_params(params: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """A copy of all parameters on `device`; `.to` alone would share them (erratum 2)."""
    new_params = [p.detach().clone().to(device) for p in params]
    for p in new_params:
        p.requires_grad_()
    return new_params


def lenet(X: Tensor, params: Sequence[Tensor]) -> Tensor:
    """Logits [b, 10] of the chapter's LeNet; dense layers take images as rows."""
    h1_conv = F.conv2d(X, weight=params[0], bias=params[1])
    h1 = F.avg_pool2d(F.relu(h1_conv), kernel_size=(2, 2), stride=(2, 2))
    h2_conv = F.conv2d(h1, weight=params[2], bias=params[3])
    h2 = F.avg_pool2d(F.relu(h2_conv), kernel_size=(2, 2), stride=(2, 2))
    h3 = F.relu(torch.mm(h2.reshape(h2.shape[0], -1), params[4]) + params[5])
    return torch.mm(h3, params[6]) + params[7]


def allreduce(data: Sequence[Tensor]) -> None:
    """Sum on the first device, then send the sum back in place (erratum 1)."""
    for i in range(1, len(data)):
        data[0][:] += data[i].to(data[0].device)
    for i in range(1, len(data)):
        data[i][:] = data[0].to(data[i].device)


def split_batch(
    X: Tensor, y: Tensor, devices: Sequence[torch.device]
) -> tuple[list[Tensor], list[Tensor]]:
    """One shard per device; torch's own `scatter` knows no CPU (erratum 13)."""
    assert X.shape[0] == y.shape[0]
    shards = zip(X.tensor_split(len(devices)), y.tensor_split(len(devices)), devices, strict=True)
    X_shards, y_shards = zip(*((X_.to(d), y_.to(d)) for X_, y_, d in shards), strict=True)
    return list(X_shards), list(y_shards)


def sgd(params: Sequence[Tensor], lr: float, batch_size: int) -> None:
    """One step of minibatch SGD, parameter by parameter."""
    with torch.no_grad():
        for param in params:
            assert param.grad is not None
            param -= lr * param.grad / batch_size
            param.grad.zero_()


def train_batch(
    X: Tensor,
    y: Tensor,
    device_params: Sequence[Sequence[Tensor]],
    devices: Sequence[torch.device],
    lr: float,
) -> None:
    """One step of all replicas."""
    X_shards, y_shards = split_batch(X, y, devices)
    losses = [
        F.cross_entropy(lenet(X_shard, params), y_shard, reduction="none").sum()
        for X_shard, y_shard, params in zip(X_shards, y_shards, device_params, strict=True)
    ]
    for shard_loss in losses:
        shard_loss.backward()
    with torch.no_grad():
        for replicas in zip(*device_params, strict=True):  # the copies of one parameter
            allreduce([p.grad for p in replicas])
    for params in device_params:
        sgd(params, lr, X.shape[0])


def lenet_epoch(
    batches: DataLoader,
    device_params: Sequence[Sequence[Tensor]],
    devices: Sequence[torch.device],
    lr: float,
) -> None:
    """Train once on all batches, waiting for the devices after each."""
    for X, y in batches:
        train_batch(X, y, device_params, devices, lr)
        synchronize(devices)


# Concisely: any network, torch's optimizer


def concise(net: nn.Module, devices: Sequence[torch.device]) -> nn.Module:
    """`net` on all devices through `DataParallel`, which takes no CPU."""
    net.to(devices[0])
    if devices[0].type == "cpu":
        return net
    return nn.DataParallel(net, device_ids=list(devices))


def resnet18_epoch(
    net: nn.Module, batches: DataLoader, optimizer: torch.optim.Optimizer, device: torch.device
) -> None:
    """Train what `concise` returned once on all batches; nothing waits for `device`."""
    loss = nn.CrossEntropyLoss()
    net.train()
    for X, y in batches:
        optimizer.zero_grad()
        X, y = X.to(device), y.to(device)
        loss(net(X), y).backward()
        optimizer.step()
