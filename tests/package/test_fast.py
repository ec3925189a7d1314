"""What is fast computes what is not: the same bits of data, the same steps up to rounding."""

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from d2l_mgpu import (
    DeviceBatches,
    FastNet,
    FastStep,
    LeNet,
    assert_equals_one_device,
    exact_dtype,
    get_devices,
    largest_difference,
    load_data_fashion_mnist,
    on_device,
    resnet18,
)
from d2l_mgpu import fast as fast_module
from d2l_mgpu.data import Batches, Images
from d2l_mgpu.train import load_weights, main
from tests.support import ROOT

[DEVICE] = get_devices(1, quiet=True)
EXACT = exact_dtype([DEVICE])
BF16 = 2.0**-8  # how far rounding to bfloat16, which keeps 8 bits, moves a number at most


@pytest.fixture(scope="module")
def images() -> Images:
    return load_data_fashion_mnist(8, num_train=50, num_test=1, source="generated")[0].dataset


# Data


def same_epochs(ours: Batches, theirs: Batches) -> bool:
    """Whether two epochs of both have the same bits, and lie where they should."""
    return all(
        X.device == y.device == DEVICE and torch.equal(X.cpu(), A) and torch.equal(y.cpu(), b)
        for _ in range(2)
        for (X, y), (A, b) in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("resize", [None, 12])
def test_batches_made_on_the_device_are_the_same_to_the_bit(
    images: Images, seed: int | None, resize: int | None
) -> None:
    part = Images(images.pixels, images.labels, name="", origin="", resize=resize)
    if resize and DEVICE.type != "cpu":
        pytest.skip("resizing rounds differently on a GPU")
    assert same_epochs(DeviceBatches(part, 8, DEVICE, seed=seed), Batches(part, 8, seed=seed))


def test_another_order_and_another_division_are_noticed(images: Images) -> None:
    assert not same_epochs(DeviceBatches(images, 8, DEVICE, seed=4), Batches(images, 8, seed=3))
    moved = on_device(images, DEVICE)
    assert (moved.pixels.device, len(moved), moved.name) == (DEVICE, 50, images.name)
    times_reciprocal = images.pixels.float() * (1 / 255)
    assert not torch.equal(images[:][0].squeeze(1), times_reciprocal)


# Layout, precision, compilation


def small_resnet() -> nn.Module:
    torch.manual_seed(0)
    return resnet18(10)


def steps(
    make_net: Callable[[], nn.Module],
    images: Images,
    dtype: torch.dtype,
    change: Callable[[nn.Module], nn.Module] = lambda net: net,
    lr: float = 0.1,
) -> list[Tensor]:
    """Three plain steps with 8, 8 and 5 images; return the losses and the whole state."""
    net = make_net().to(DEVICE, dtype)
    changed, losses = change(net), []
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for first, last in pairwise((0, 8, 16, 21)):
        X, y = (part.to(DEVICE) for part in images[first:last])
        optimizer.zero_grad()
        loss = F.cross_entropy(changed(X.to(dtype)), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *(value.double() for value in net.state_dict().values())]


def with_options(**options: object) -> Callable[[nn.Module], nn.Module]:
    return lambda net: FastNet(net, DEVICE, **options)


def transposed(net: nn.Module) -> nn.Module:
    """A mistake with layouts: rows and columns of the images change places."""
    changed = FastNet(net, DEVICE, bf16=False)
    changed.register_forward_pre_hook(lambda _, inputs: (inputs[0].transpose(-2, -1),))
    return changed


@pytest.mark.parametrize("make_net", [LeNet, small_resnet])
def test_the_layout_changes_nothing_but_rounding(
    make_net: Callable[[], nn.Module], images: Images
) -> None:
    plain = steps(make_net, images, EXACT)
    changed = FastNet(make_net(), DEVICE, bf16=False)
    kernels = [p for p in changed.parameters() if p.dim() == 4]
    assert kernels and all(p.is_contiguous(memory_format=torch.channels_last) for p in kernels)
    assert_equals_one_device(steps(make_net, images, EXACT, with_options(bf16=False)), plain)
    with pytest.raises(AssertionError):
        assert_equals_one_device(steps(make_net, images, EXACT, transposed), plain)


def test_bfloat16_stays_within_its_tolerance_and_weights_stay_float32(images: Images) -> None:
    plain, ours = (
        steps(LeNet, images, torch.float32, with_options(bf16=bf16)) for bf16 in (False, True)
    )
    difference = largest_difference(ours, plain)
    assert 0 < difference < 4 * BF16
    net = FastNet(LeNet(), DEVICE, bf16=True)
    logits = net(images[:4][0].to(DEVICE))
    logits.sum().backward()
    assert {logits.dtype, *(t.dtype for p in net.parameters() for t in (p, p.grad))} == {
        torch.float32
    }


def test_small_steps_reach_the_weights_and_would_be_lost_in_bfloat16(images: Images) -> None:
    """Why autocast, and not a network of bfloat16 numbers."""
    X, y = (part.to(DEVICE) for part in images[:8])
    moved = []
    for net in (FastNet(LeNet(), DEVICE, bf16=True), LeNet().to(DEVICE, torch.bfloat16)):
        before = [p.detach().clone() for p in net.parameters()]
        F.cross_entropy(net(X.to(before[0].dtype)), y).backward()
        torch.optim.SGD(net.parameters(), lr=1e-4).step()
        W3, W3_before = list(net.parameters())[4], before[4]
        moved.append((W3_before != W3).double().mean().item())
    assert moved[0] > 0.5 > 0.05 > moved[1]


def test_a_compiled_network_takes_the_same_steps(images: Images) -> None:
    """Batches of 8 are compiled, the last one, of 5, is not."""
    nets: list[FastNet] = []
    sizes: list[int] = []

    def compiled(net: nn.Module) -> nn.Module:
        nets.append(FastNet(net, DEVICE, bf16=False, compiled_for=8))
        run = torch.compile(lambda X: nets[0].net(X), dynamic=False)
        nets[0].compiled = lambda X: [sizes.append(len(X)), run(X)][1]
        return nets[0]

    ours = steps(LeNet, images, EXACT, compiled)
    assert nets[0].compiled_for == 8 and sizes == [8, 8]
    assert_equals_one_device(ours, steps(LeNet, images, EXACT))


def test_without_a_compiler_one_line_says_so_and_training_goes_on(tmp_path: Path) -> None:
    program = """
import torch
from d2l_mgpu import LeNet
from d2l_mgpu.fast import FastNet

net, X = LeNet(), torch.ones(4, 1, 28, 28)
changed = FastNet(net, torch.device("cpu"), bf16=False, compiled_for=4)
for _ in range(2):
    changed(X).sum().backward()
print(torch.allclose(changed(X), net(X)))
"""
    nothing = {"CXX": "/no/compiler", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    environment = os.environ | nothing | {"PYTHONPATH": str(ROOT), "CUDA_HOME": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.stdout == "True\n", done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("Not compiled") and "No working C++ compiler" in line


def test_a_wrong_image_is_the_reader_s_mistake_and_not_the_compiler_s(
    capfd: pytest.CaptureFixture[str],
) -> None:
    net = FastNet(nn.Linear(3, 2), DEVICE, channels_last=False, compiled_for=4)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        net(torch.ones(4, 5, device=DEVICE))
    assert "Not compiled" not in capfd.readouterr().err


@pytest.mark.parametrize(("dtype", "bf16"), [(torch.float32, True), (torch.float64, False)])
def test_logits_of_whole_numbers_are_not_rounded_to_whole_numbers(
    dtype: torch.dtype, bf16: bool
) -> None:
    torch.manual_seed(0)
    tokens = torch.arange(6, device=DEVICE).reshape(2, 3)
    net = nn.Sequential(nn.Embedding(6, 4), nn.Flatten(), nn.Linear(12, 5)).to(DEVICE, dtype)
    expected = net(tokens)
    logits = FastNet(net, DEVICE, channels_last=False, bf16=bf16)(tokens)
    assert logits.dtype == expected.dtype == dtype
    torch.testing.assert_close(logits, expected, rtol=0, atol=4 * BF16)


# Steps


def test_what_is_no_image_passes_as_it_would_without(images: Images) -> None:
    net, X = nn.Linear(3, 2), torch.ones(5, 3)
    assert torch.equal(FastNet(net, "cpu", bf16=False)(X), net(X))


def test_an_optimizer_of_another_network_is_refused() -> None:
    other = torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=0.1)
    with pytest.raises(ValueError, match="optimizer has no parameter of net: make it of"):
        FastStep(nn.Linear(3, 2), other)


def test_a_step_is_the_step_that_it_stands_for(images: Images) -> None:
    plain = steps(LeNet, images, EXACT)

    def ours(forget: bool) -> list[Tensor]:
        net = LeNet().to(DEVICE, EXACT)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        if forget:
            optimizer.zero_grad = lambda: None  # type: ignore[method-assign]
        step = FastStep(net, optimizer)
        batches = [images[0:8], images[8:16], images[16:21]]
        losses = [step(X.to(DEVICE, EXACT), y.to(DEVICE)) for X, y in batches]
        return [*losses, *(p.detach() for p in net.parameters())]

    assert_equals_one_device(ours(forget=False), plain)
    with pytest.raises(AssertionError):
        assert_equals_one_device(ours(forget=True), plain)


# The program


@pytest.fixture
def trained(tmp_path: Path) -> Callable[..., dict[str, Tensor]]:
    """Train with these options; return the weights."""
    options = [
        "--source",
        "generated",
        "--num-train",
        "100",
        "--num-test",
        "10",
        "--batch-size",
        "34",
        "--epochs",
        "1",
    ]

    def run(name: str, *more: str) -> dict[str, Tensor]:
        main([*options, "--checkpoint-dir", str(tmp_path / name), *more])
        return load_weights(tmp_path / name)

    return run


def test_a_fast_run_takes_the_same_steps(
    trained: Callable[..., dict[str, Tensor]], capfd: pytest.CaptureFixture[str]
) -> None:
    plain = trained("plain")
    assert "Fast" not in capfd.readouterr().err
    with mock.patch.object(fast_module, "computes_bf16", return_value=False):
        layout = trained("layout", "--fast")
    assert f"Fast: images on {DEVICE}, channels last" in capfd.readouterr().err
    with mock.patch.object(fast_module, "computes_bf16", return_value=True):
        bf16 = trained("bf16", "--fast")
    assert "channels last, bfloat16" in capfd.readouterr().err
    assert plain.keys() == layout.keys() == bf16.keys()
    for name, weights in plain.items():
        torch.testing.assert_close(layout[name], weights, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(bf16[name], weights, rtol=0, atol=4 * BF16)
    assert any(not torch.equal(bf16[name], layout[name]) for name in plain)


def test_a_run_goes_on_as_fast_as_it_began(
    trained: Callable[..., dict[str, Tensor]], capfd: pytest.CaptureFixture[str]
) -> None:
    trained("run", "--fast")
    with pytest.raises(SystemExit):
        trained("run")
    assert "was written with fast True, but this run has False" in capfd.readouterr().err
