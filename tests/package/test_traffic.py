"""What crosses between devices is copied and counted, and so is what they keep."""

import torch

from d2l_mgpu import Traffic, lenet_params
from d2l_mgpu.models import LAYERS
from tests.package.test_splitting import one_step

CPU = torch.device("cpu")


def test_replicas_on_one_device_exchange_real_copies():
    x = torch.ones(3)
    (copy,) = Traffic().send([x], [CPU], "forward")
    assert copy.data_ptr() != x.data_ptr()


def test_traffic_prints_one_line_per_phase():
    assert str(one_step("network", k=2, batch_size=1)[0]).splitlines() == [
        "forward  1 synchronization, 1 transfer, 3,200 bytes",
        "backward 1 synchronization, 1 transfer, 3,200 bytes",
    ]
    assert str(Traffic()) == "nothing crosses"


def test_kept_activations_are_counted_on_the_device_that_computes():
    params, traffic = lenet_params(), Traffic()
    W, b = (p.requires_grad_() for p in params[4:6])
    h = torch.randn(6, 50, 4, 4)
    with traffic.on(1):
        result = LAYERS[2](h, W, b)
    with torch.no_grad(), traffic.on(0):
        LAYERS[2](h, W, b)
    # the matrix product keeps its input, ReLU its result; W is a parameter, no activation
    assert traffic.kept == {1: h.nbytes + result.nbytes}
