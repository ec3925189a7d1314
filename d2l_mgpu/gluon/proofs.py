"""Proofs that several contexts compute what one computes, and that MXNet computes what
PyTorch computes.

Arrays are compared by the functions of `d2l_mgpu.proofs`, as tensors that share their
memory. So each argument here may hold arrays of MXNet or tensors of PyTorch, and both
may be compared. MXNet's CPU computes in float64 what the two networks need, so 1e-12 is
the tolerance here, too.
"""

import ctypes
from collections.abc import Callable, Iterable, Sequence

import mxnet as mx
import torch
from mxnet import autograd, gluon, np
from mxnet.base import _LIB, check_call
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from d2l_mgpu import proofs
from d2l_mgpu.gluon.data import from_torch
from d2l_mgpu.gluon.devices import synchronize
from d2l_mgpu.gluon.models import lenet, lenet_params, loss


def as_tensors(arrays: Iterable[np.ndarray]) -> list[Tensor]:
    """View each array as a tensor in the same memory, once all queued work is done.

    What MXNet does to the array later shows in the tensor: use it at once, or clone it.
    """
    synchronize()
    tensors = []
    for x in arrays:
        if not isinstance(x, Tensor):
            # oneDNN may keep an array in a layout of its own, which DLPack cannot
            # describe. Asking for its address puts it back; no public function does.
            check_call(_LIB.MXNDArrayGetData(x.handle, ctypes.byref(ctypes.c_void_p())))
            x = from_dlpack(mx.nd.to_dlpack_for_read(x))
        tensors.append(x.detach())
    return tensors


def copy_weights(source: torch.nn.Module, net: gluon.Block) -> None:
    """Give `net`, initialized and of the same layers and dtype, the parameters and
    statistics of a network of PyTorch, on all its devices.

    Parameters go by their place in the network, `3.0.conv1.weight`, which both
    frameworks name alike; only BatchNorm's weight and bias are called gamma and beta in
    Gluon.
    """
    weights = source.state_dict()
    for name, parameter in net._collect_params_with_prefix().items():
        name = name.replace("gamma", "weight").replace("beta", "bias")
        parameter.set_data(from_torch(weights[name]))


def largest_difference(
    ours: Iterable[np.ndarray], theirs: Iterable[np.ndarray]
) -> float:
    """Return the largest absolute difference between two lists of arrays of equal
    shapes; NaN where one holds NaN."""
    return proofs.largest_difference(as_tensors(ours), as_tensors(theirs))


def assert_replicas_identical(device_params: Sequence[Sequence[np.ndarray]]) -> None:
    """Insist that all replicas hold the same bits, each in memory of its own."""
    proofs.assert_replicas_identical([as_tensors(params) for params in device_params])


def assert_equals_one_device(
    ours: Sequence[np.ndarray], one_device: Sequence[np.ndarray]
) -> float:
    """Insist that `ours` equals what one device computed, up to rounding; return the
    difference."""
    return proofs.assert_equals_one_device(as_tensors(ours), as_tensors(one_device))


def prove_equals_one_device(
    train_batch: Callable,
    get_params: Callable,
    devices: Sequence[mx.Context],
    *,
    batch_size: int = 7,
    num_steps: int = 3,
    dtype: str = "float64",
) -> float:
    """Train LeNet on `devices` and on one device, on the same batches, and compare
    every step.

    The one device uses nothing but autograd on the mean loss of the whole batch.
    Returns the largest difference over all steps; raises AssertionError where the
    replicas come apart, share storage, or leave the path of the one device.
    """
    start = [p.astype(dtype) for p in lenet_params()]
    one_device = [p.copy() for p in start]
    for p in one_device:
        p.attach_grad()
    device_params = [get_params(start, device) for device in devices]
    difference = 0.0
    assert_replicas_identical(device_params)
    batches = proofs.random_batches(num_steps, batch_size, torch.float32)
    for number, (images, labels) in enumerate(batches, start=1):
        X, y, lr = from_torch(images).astype(dtype), from_torch(labels), 0.1 / number
        with autograd.record():
            mean_loss = loss(lenet(X, one_device), y).mean()
        mean_loss.backward()
        for p in one_device:
            p -= lr * p.grad
        synchronize()  # before anything can happen to the batch
        train_batch(X, y, device_params, devices, lr)
        assert_replicas_identical(device_params)
        difference = max(
            difference, assert_equals_one_device(device_params[0], one_device)
        )
    return difference
