"""The two networks have the shapes, sizes and values that the book says they have."""

import ast
import re

import pytest
import torch

from book.config import ROOT
from d2l_mgpu import LeNet, Residual, lenet, lenet_params, loss, resnet18
from d2l_mgpu.models import LENET_SHAPES


def test_lenet_has_the_parameters_of_the_outline():
    shapes = [tuple(p.shape) for p in lenet_params()]
    assert shapes == [
        (20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (800, 128), (128,), (128, 10), (10,)
    ]  # fmt: skip
    assert sum(p.numel() for p in lenet_params()) == 129_068


def test_the_chapter_shows_the_shapes_that_the_package_uses():
    chapter = (ROOT / "chapters" / "multiple-gpus.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^LENET_SHAPES = (\[.*?^\])$", chapter, re.MULTILINE | re.DOTALL)
    assert ast.literal_eval(shown) == LENET_SHAPES


def test_the_published_start_is_a_parameter_and_the_default_scales_each_layer():
    published, scaled = lenet_params(std=0.01), lenet_params()
    assert published[4].std().item() == pytest.approx(0.01, rel=0.02)
    assert scaled[4].std().item() == pytest.approx((2 / 800) ** 0.5, rel=0.02)
    assert scaled[2].std().item() == pytest.approx((2 / (20 * 25)) ** 0.5, rel=0.02)
    assert all(not p.any() for p in scaled[1::2])


def test_the_same_seed_gives_the_same_weights_and_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    assert all(torch.equal(a, b) for a, b in zip(lenet_params(), lenet_params(), strict=True))
    assert not torch.equal(lenet_params(seed=1)[0], lenet_params(seed=2)[0])
    assert torch.equal(state, torch.get_rng_state())


def test_the_module_starts_afresh_from_its_own_std_and_seed():
    net = LeNet(std=0.1, seed=3).double()
    start = [p.clone() for p in net.parameters()]
    with torch.no_grad():
        for p in net.parameters():
            p += 1
    net.reset_parameters()
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), start, strict=True))
    assert torch.equal(start[0].float(), lenet_params(0.1, 3)[0])


@pytest.mark.parametrize("n", [0, 1, 5])
def test_lenet_and_its_loss_take_any_number_of_images_even_none(n):
    logits = lenet(torch.zeros(n, 1, 28, 28), lenet_params())
    assert logits.shape == (n, 10)
    assert loss(logits, torch.zeros(n, dtype=torch.int64)).shape == (n,)


def test_resnet18_has_as_many_parameters_as_the_published_one():
    assert sum(p.numel() for p in resnet18(10).parameters()) == 11_175_818
    assert resnet18(10)(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_resnet18_equals_the_one_of_d2l_given_the_same_weights():
    d2l = pytest.importorskip("d2l.torch", reason="pip install --no-deps d2l==1.0.3")
    X = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    published, ours = d2l.resnet18(10), resnet18(10)
    published.eval()(X)  # its lazy layers get their sizes
    # D2L adds the shortcut before, we after the two convolutions: pair the layers by shape
    weights = dict(published.named_parameters())
    assert sum(p.numel() for p in weights.values()) == 11_175_818
    with torch.no_grad():
        for name, p in ours.named_parameters():
            p.copy_(weights[published_name(name)])
    for train in (False, True):
        torch.testing.assert_close(published.train(train)(X), ours.train(train)(X))


def published_name(name: str) -> str:
    """Translate the name of one of our parameters into D2L's name for it."""
    module, _, rest = name.partition(".")
    parts = {"3": "resnet_block1", "4": "resnet_block2", "5": "resnet_block3"}
    parts |= {"6": "resnet_block4", "9": "fc.1"}
    return f"{parts.get(module, module)}.{rest.replace('shortcut', 'conv3')}"


@pytest.mark.parametrize(
    ("arguments", "shape", "shortcut"),
    [
        ((8, 8), (2, 8, 6, 6), torch.nn.Identity),
        ((8, 16), (2, 16, 6, 6), torch.nn.Conv2d),
        ((8, 16, 2), (2, 16, 3, 3), torch.nn.Conv2d),
    ],
)
def test_a_residual_block_has_a_convolution_in_its_shortcut_only_where_the_shape_changes(
    arguments, shape, shortcut
):
    block = Residual(*arguments)
    assert block(torch.zeros(2, 8, 6, 6)).shape == shape
    assert isinstance(block.shortcut, shortcut)
