"""A training run that can stop after any step and go on there, on any number of ranks.

Everything the next step depends on is in the checkpoint: weights, BatchNorm statistics,
momentum, the place in the data, which the learning rate follows, and each rank's random
numbers. So on the same number of ranks a resumed run ends with the same bits as one
that was never interrupted.
"""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.nn.parallel import DistributedDataParallel

from d2l_mgpu.accumulation import backward_in_parts
from d2l_mgpu.concise import evaluate_accuracy_gpus
from d2l_mgpu.cuda_graphs import CudaGraphed
from d2l_mgpu.data import Batches, Images, on_device
from d2l_mgpu.devices import synchronize
from d2l_mgpu.fast import FastNet
from d2l_mgpu.history import Epoch
from d2l_mgpu.processes.group import Group
from d2l_mgpu.sampling import ShardSampler
from d2l_mgpu.train import checkpoint
from d2l_mgpu.train.checkpoint import Checkpoint
from d2l_mgpu.train.checksums import CheckpointError
from d2l_mgpu.train.recipe import Recipe

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


class Trainer:
    """Training of `net` on this rank's shards of `images`, together with the other
    ranks.

    `step` counts the steps taken, `sampler` knows the place in the data.
    """

    def __init__(
        self, net: nn.Module, images: Images, recipe: Recipe, group: Group
    ) -> None:
        if recipe.double and group.device.type == "mps":
            raise ValueError("Apple's GPU has no double precision: leave --double out.")
        self.images, self.recipe, self.group = images, recipe, group
        self.sampler = ShardSampler(
            len(images),
            recipe.batch_size,
            seed=recipe.seed,
            rank=group.rank,
            world_size=group.world_size,
        )
        self.step, self.num_steps = 0, recipe.epochs * len(self.sampler)
        self.dtype = torch.float64 if recipe.double else torch.float32
        self.net = self.replica = net.to(group.device, self.dtype)
        self.how = ""  # what `fast` means on this device
        if recipe.fast:
            # Not compiled: on CPUs that took as long as an epoch or two, and saved
            # less.
            self.images, self.replica = (
                on_device(images, group.device),
                FastNet(net, group.device),
            )
            self.how = f"images on {group.device}, {self.replica.extra_repr()}"
        if group.world_size > 1:
            X, y = self._on_device(images[:2])
            self.replica = with_settled_buckets(
                DistributedDataParallel(self.replica), X, y
            )
        self.backward: Callable[..., Tensor] = partial(backward_in_parts, self.replica)
        if recipe.fast and group.device.type == "cuda" and group.world_size == 1:
            # Without the optimizer, whose learning rate follows a schedule. Several
            # ranks go without: recording the collectives of DDP takes more care than
            # this program can give.
            self.backward = CudaGraphed(self.backward, net.parameters())
            self.how += ", CUDA graphs"
        self.optimizer = torch.optim.SGD(
            self.replica.parameters(),
            lr=recipe.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
        )
        # This rank's part of the epoch's loss: [sum over its examples].
        self.loss = torch.zeros(
            1, dtype=torch.float64, device=float64_device(group.device)
        )
        self.seconds = 0.0
        # Dropout masks differ between ranks; the weights, which come from `seed`, do
        # not.
        torch.manual_seed(recipe.seed + group.rank)

    def steps(self) -> Iterator[Tensor]:
        """Take the rest of this epoch's steps; yield this rank's share of each mean
        loss."""
        self.replica.train()
        start = time.perf_counter()
        for indices in self.sampler:
            examples = self.sampler.size(self.sampler.position - 1)
            X, y = self._on_device(self.images[indices])
            # DDP averages over ranks: this weight makes that the mean over the whole
            # batch.
            weight = self.group.world_size / examples
            self.optimizer.zero_grad()
            loss = self.backward(X, y, self.recipe.accumulate, weight)
            for group in self.optimizer.param_groups:
                group["lr"] = self.recipe.lr * self._schedule()
            self.optimizer.step()
            self.step += 1
            share = loss / self.group.world_size
            self.loss += share.to(self.loss) * examples
            self.seconds += time.perf_counter() - start
            yield share
            start = time.perf_counter()
        synchronize([self.group.device])
        self.seconds += time.perf_counter() - start

    def finish_epoch(self, test_iter: Batches) -> Epoch:
        """Return the record of the epoch that `steps` has ended, equal on all ranks.

        The accuracy counts each test example once, however many ranks share them;
        `seconds` are those of the steps that this run has taken, not of those before it
        resumed.
        """
        loss, seconds = self.loss.clone(), self.seconds
        dist.all_reduce(loss)
        self.loss.zero_()
        self.seconds = 0.0
        return Epoch(
            self.sampler.epoch,
            loss=loss.item() / len(self.images),
            accuracy=evaluate_accuracy_gpus(
                self.replica, map(self._on_device, test_iter)
            ),
            seconds=round(seconds, 3),
        )

    def save(self, folder: Path, facts: dict[str, Any]) -> Path:
        """Write a checkpoint of this moment; `facts` are kept with it. A collective."""
        if self.group.world_size > 1:
            # Each rank has gathered other BatchNorm statistics. DDP goes on with those
            # of rank 0, while a checkpoint would take each tensor from whichever rank
            # comes handy.
            for buffer in self.replica.buffers():
                dist.broadcast(buffer, src=0)
        state, _ = self._shared_state()
        state["ranks"] = {
            f"{self.group.rank}.{name}": x for name, x in self._own_state().items()
        }
        return checkpoint.save(
            folder, self.step, state, {**facts, "sampler": self.sampler.state_dict()}
        )

    def load(self, found: Checkpoint) -> int:
        """Go on from the checkpoint that `checkpoint.find` has found; return its number
        of ranks.

        On more ranks than before the new ones draw random numbers of their own; what
        ranks that are gone had summed up of the epoch's loss goes to rank 0. A
        collective. Raises CheckpointError when it is the checkpoint of another
        training.
        """
        place = found.facts.get("sampler", {})
        match place:
            case {"epoch": int(epoch), "position": int(position)} if (
                place.keys() == self.sampler.state_dict().keys()
                and epoch * len(self.sampler) + position == found.step
            ):
                pass
            case _:
                raise CheckpointError(
                    f"{found.path / 'checkpoint.json'} is of another training."
                )
        state, options = self._shared_state()
        rank = self.group.rank
        before = len(
            {name.split(".")[1] for name in found.tensors if name.startswith("ranks.")}
        )
        own = self._own_state() if rank < before else {}
        if f"ranks.{rank}.cuda_random" not in found.tensors:  # it is from a CPU
            own.pop("cuda_random", None)
        gone = range(self.group.world_size, before) if rank == 0 else ()
        ranks = {f"{rank}.{name}": torch.zeros_like(x) for name, x in own.items()}
        ranks |= {f"{r}.loss": torch.zeros_like(self.loss) for r in gone}
        checkpoint.load(found, {**state, "ranks": ranks})
        set_state_dict(
            self.net,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"] | options,
            options=FLAT,
        )
        self.sampler.load_state_dict(place)
        self.step = found.step
        if own:
            torch.set_rng_state(ranks[f"{rank}.random"])
        else:
            torch.manual_seed(self.recipe.seed + rank + 1_000_003 * self.step)
        if "cuda_random" in own:
            torch.cuda.set_rng_state(ranks[f"{rank}.cuda_random"], self.group.device)
        saved = [value for name, value in ranks.items() if name.endswith(".loss")]
        self.loss.copy_(sum(saved, torch.zeros_like(self.loss)))
        return before

    def is_finite(self) -> bool:
        """Whether there is no NaN and no infinity in the weights and this epoch's loss
        so far, on any rank. A collective. What is in a gradient gets into the weights,
        too."""
        tensors = [*self.net.state_dict().values(), self.loss]
        return not self.group.any_rank(
            not all(bool(x.isfinite().all()) for x in tensors)
        )

    def _on_device(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """A batch where this rank computes, in the dtype that it computes in."""
        X, y = batch
        return X.to(self.group.device, self.dtype), y.to(self.group.device)

    def _shared_state(self) -> tuple[checkpoint.State, dict[str, Any]]:
        """What all ranks hold alike: the tensors, and the options of the optimizer,
        which come from the recipe and are not saved."""
        # or a new optimizer would not tell which state it will have
        self.optimizer.zero_grad()
        states: Any = get_state_dict(self.net, self.optimizer, options=FLAT)
        model, optimizer = states
        momentum = {name: x for name, x in optimizer.items() if isinstance(x, Tensor)}
        options = {name: x for name, x in optimizer.items() if name not in momentum}
        return {"model": model, "optimizer": momentum}, options

    def _own_state(self) -> dict[str, Tensor]:
        """What only this rank has."""
        own = {"random": torch.get_rng_state(), "loss": self.loss}
        if self.group.device.type == "cuda":
            own["cuda_random"] = torch.cuda.get_rng_state(self.group.device)
        return own

    def _schedule(self) -> float:
        """The share of the learning rate that the next step takes."""
        if self.recipe.schedule == "constant":
            return 1.0
        return (1 + math.cos(math.pi * self.step / self.num_steps)) / 2


def float64_device(device: torch.device) -> torch.device:
    """Where float64 sums can be kept: Apple's GPU has no such numbers."""
    return torch.device("cpu") if device.type == "mps" else device


def with_settled_buckets(
    replica: DistributedDataParallel, X: Tensor, y: Tensor
) -> DistributedDataParallel:
    """Let DDP arrange its buckets now, by a step on X and y whose traces are wiped out.

    DDP sorts gradients into buckets anew after its first backward pass. A sum of three
    or more numbers depends on where in a bucket it is computed, so a resumed run, whose
    first step is not the run's first, would differ in the last bits.
    """
    before = {
        name: value.clone() for name, value in replica.module.state_dict().items()
    }
    for _ in range(2):
        backward_in_parts(replica, X, y, 1, 1.0)
    replica.module.load_state_dict(before)
    replica.zero_grad()
    return replica
