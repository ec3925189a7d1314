"""Both ways to train in parallel, on real images through the ordinary loader."""

from functools import partial

import pytest
import torch

from d2l_mgpu import (
    assert_replicas_identical,
    concise,
    get_devices,
    get_params,
    lenet_params,
    load_data_fashion_mnist,
    resnet18,
    scratch,
    train_batch,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(autouse=True)
def real_images(real_data, monkeypatch):
    monkeypatch.setenv("D2L_MGPU_DATA", str(real_data))
    monkeypatch.setenv("D2L_MGPU_SOURCE", "real")


def train_lenet(k: int, num_epochs: int, **images: int) -> tuple[list[float], list[float]]:
    """Train from the published start until the test accuracy exceeds 0.95, and insist after each
    step that the replicas are identical; return the losses of all steps and the accuracies."""
    train_iter, test_iter = load_data_fashion_mnist(256, name="MNIST", **images)
    devices = get_devices(k)
    params = [get_params(lenet_params(std=0.01), device) for device in devices]
    losses, accuracies = [], []
    for _ in range(num_epochs):
        for X, y in train_iter:
            losses.append(train_batch(X, y, params, devices, lr=0.2).item())
            assert_replicas_identical(params)
        accuracies.append(scratch.evaluate_accuracy(test_iter, params, devices))
        if accuracies[-1] > 0.95:
            break
    return losses, accuracies


def test_two_replicas_learn_60000_real_images():
    losses, accuracies = train_lenet(2, num_epochs=6)
    assert len(losses) >= 235
    assert accuracies[0] < 0.2  # the published start stalls, as the chapter says
    assert accuracies[-1] > 0.95


def test_lenet_takes_the_same_50_steps_on_one_and_on_two_replicas():
    one, two = (train_lenet(k, 1, num_train=50 * 256, num_test=256)[0] for k in (1, 2))
    assert len(one) == 50
    assert one == pytest.approx(two, abs=1e-4)


def test_resnet18_learns_from_real_images_alike_in_one_and_in_two_processes(capsys):
    load = partial(load_data_fashion_mnist, num_train=240, num_test=60)
    nets = [resnet18(10), resnet18(10)]
    one, two = (
        concise.train(net, k, 24, 0.02, num_epochs=2, load_data=load)
        for k, net in enumerate(nets, start=1)
    )
    assert "240 training and 60 test images, from $D2L_MGPU_DATA" in capsys.readouterr().out
    for a, b in zip(one, two, strict=True):
        # Each replica normalises with the statistics of its own shard: near, not equal
        assert a.loss == pytest.approx(b.loss, rel=0.15)
    assert one[1].loss < one[0].loss and two[1].loss < two[0].loss
    assert all(torch.isfinite(p).all() for net in nets for p in net.parameters())
