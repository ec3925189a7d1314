"""A step that is replayed as a CUDA graph is the step that it stands for."""

import pytest
import torch
from torch import nn

from d2l_mgpu import DeviceBatches, FastNet, FastStep, LeNet, get_devices, load_data_fashion_mnist
from d2l_mgpu.data import Images
from tests.package.test_fast import small_resnet

[DEVICE] = get_devices(1, quiet=True)


@pytest.fixture(scope="module")
def images() -> Images:
    return load_data_fashion_mnist(8, num_train=50, num_test=1, source="generated")[0].dataset


@pytest.mark.skipif(DEVICE.type != "cuda", reason="CUDA graphs need a CUDA device")
@pytest.mark.parametrize("bf16", [False, True])
def test_replayed_steps_equal_eager_ones(bf16: bool, images: Images) -> None:
    """Enough steps to warm up, record and replay; some smaller batches lie in between."""
    results = []
    for graph in (False, True):
        net = small_resnet()
        net.append(nn.Dropout(0.0))
        changed = FastNet(net, DEVICE, bf16=bf16)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        step = FastStep(changed, optimizer, graph=graph)
        batches = DeviceBatches(images, 8, DEVICE, seed=0)
        losses = [step(X, y) for _ in range(5) for X, y in batches]
        results.append([*losses, *(p.detach() for p in net.parameters())])
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-3, atol=1e-4)


def test_a_graph_wants_a_gpu() -> None:
    net = LeNet()
    with pytest.raises(ValueError, match="needs a CUDA device, not cpu"):
        FastStep(net, torch.optim.SGD(net.parameters()), graph=True)
