"""A run that stops and goes on equals one that did not: in every bit; on other ranks, in value."""

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import set_state_dict

from d2l_mgpu import launch, load_data_fashion_mnist
from d2l_mgpu.models import LeNet
from d2l_mgpu.processes.group import process_group
from d2l_mgpu.sampling import ShardSampler
from d2l_mgpu.train import Recipe, Trainer
from d2l_mgpu.train import trainer as trainer_module
from d2l_mgpu.train.checkpoint import find

pytestmark = pytest.mark.timeout(300)

# 3 epochs of 5 steps, the last of each with 2 examples: one rank of three has none.
RECIPE = Recipe(
    batch_size=8, epochs=3, lr=0.05, momentum=0.9, weight_decay=1e-3, schedule="cosine", seed=3
)
IMAGES = {"num_train": 34, "num_test": 13}
STOPS = (2, 5, 9, 14)


def fragile_net() -> nn.Module:
    """A network with everything that a checkpoint can lose: statistics and random masks."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(),
        nn.Linear(4 * 26 * 26, 40), nn.ReLU(), nn.Linear(40, 10),
    )  # fmt: skip


def train(
    make_net: Callable[[], nn.Module],
    recipe: Recipe,
    folder: Path,
    stops: tuple[int, ...] = (),
    last: int | None = None,
) -> tuple[dict[str, Tensor], list[Any]]:
    """Train as one rank, up to step `last`; at each of `stops` save, forget all and go on.

    Returns the rank's whole state, and the figures of the epochs.
    """
    images, test_iter = (i for i in load_data_fashion_mnist(4, source="generated", **IMAGES))
    figures: list[Any] = []

    with process_group(60) as group:
        for stop in (*stops, last):
            torch.manual_seed(99)  # what a new process would not know
            trainer = Trainer(make_net(), images.dataset, recipe, group)
            if found := find(folder):
                trainer.load(found[0])
            while trainer.step != stop and trainer.sampler.epoch < recipe.epochs:
                for _ in trainer.steps():
                    if trainer.step == stop:
                        break
                else:
                    epoch = trainer.finish_epoch(test_iter)
                    figures.append((epoch.number, epoch.loss, epoch.accuracy))
            trainer.save(folder, {})
    shared, options = trainer._shared_state()
    state = {**shared, "own": trainer._own_state(), "optimizer's": options}
    tensors = {
        f"{part}.{name}": torch.as_tensor(value)
        for part, entries in state.items()
        for name, value in entries.items()
        if isinstance(value, Tensor | float)
    }
    return tensors, figures


def same_bits(folder: Path, recipe: Recipe, *plants: Callable[[], Any]) -> list[bool]:
    """For each planted fault: whether a run with stops ends in the bits of one without stops."""
    same = []
    for plant in plants:
        with plant():
            whole, figures = train(fragile_net, recipe, folder / f"{plant.__name__}, whole")
            pieces, found = train(fragile_net, recipe, folder / plant.__name__, STOPS)
        assert whole.keys() == pieces.keys() and len(figures) == 3
        same.append(figures == found and all(torch.equal(whole[k], pieces[k]) for k in whole))
    return same


@pytest.mark.parametrize(
    ("world_size", "fast"), [(1, False), (1, True), (2, False), (3, False), (3, True)]
)
def test_an_interrupted_run_ends_with_the_same_bits(
    world_size: int, fast: bool, tmp_path: Path
) -> None:
    recipe = dataclasses.replace(RECIPE, fast=fast)
    results = launch(same_bits, tmp_path, recipe, contextlib.nullcontext, num_devices=world_size)
    assert results == [[True]] * world_size


# What happens if a part of the state is forgotten: faults that every rank plants.


def random_numbers() -> Any:
    return mock.patch.object(torch, "set_rng_state", lambda state: None)


def momentum() -> Any:
    def forget(replica: nn.Module, optimizer: Any, **states: Any) -> None:
        set_state_dict(replica, optimizer, **states)
        optimizer.state.clear()

    return mock.patch.object(trainer_module, "set_state_dict", forget)


def order_of_the_data() -> Any:
    def forget(self: ShardSampler, state: dict[str, Any]) -> None:
        self.epoch, self.position, self.seed = state["epoch"], state["position"], 0

    return mock.patch.object(ShardSampler, "load_state_dict", forget)


def statistics() -> Any:
    return mock.patch.object(torch.distributed, "broadcast", lambda tensor, src: None)


def loss_so_far() -> Any:
    own = Trainer._own_state

    def forget(self: Trainer) -> dict[str, Tensor]:
        return own(self) | {"loss": torch.zeros(1, dtype=torch.float64)}

    return mock.patch.object(Trainer, "_own_state", forget)


def order_of_the_buckets() -> Any:
    return mock.patch.object(trainer_module, "with_settled_buckets", lambda replica, X, y: replica)


def test_a_forgotten_part_of_the_state_changes_the_result(tmp_path: Path) -> None:
    faults = [random_numbers, momentum, order_of_the_data, statistics, loss_so_far]
    faults += [order_of_the_buckets]
    with_fault = zip(*launch(same_bits, tmp_path, RECIPE, *faults, num_devices=3), strict=True)
    unnoticed = {f.__name__ for f, same in zip(faults, with_fault, strict=True) if all(same)}
    assert not unnoticed


def test_other_numbers_of_ranks_take_the_same_steps(tmp_path: Path) -> None:
    def pieces(folder: Path, last: int | None) -> Any:
        return train(LeNet, RECIPE, folder, (), last)

    with contextlib.redirect_stdout(None):
        one, figures = train(LeNet, RECIPE, tmp_path / "one")
    folder, changed = tmp_path / "changing", []
    for world_size, last in ((2, 3), (3, 8), (1, 11), (2, None)):
        weights, found = launch(pieces, folder, last, num_devices=world_size)[0]
        changed += found
    for name in one:
        if name.startswith("model."):
            torch.testing.assert_close(weights[name], one[name], rtol=1e-4, atol=1e-6)
    for ours, theirs in zip(changed, figures, strict=True):
        assert (ours[0], ours[2]) == (theirs[0], theirs[2])  # epoch, accuracy: exact
        assert ours[1] == pytest.approx(theirs[1], rel=1e-5)
