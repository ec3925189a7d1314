"""Which examples a rank sees: the same batches for any number of ranks, resumable
anywhere.

The order of all examples depends on `seed` and `epoch` only. One loop over a
`ShardSampler` is one epoch, or the rest of it: `position` counts the batches already
handed out, and a new sampler with the `state_dict` of another goes on behind them, on
any number of ranks. Ask for one batch at a time: what a loader fetches ahead counts as
seen.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler

from d2l_mgpu.arguments import integer


class ShardSampler(Sampler[list[int]]):
    """The examples of one rank: for each batch of an epoch, a list of indices.

    Each batch is cut into one shard per rank, as `split_batch` does. So any number of
    ranks trains on the same batches, nothing is padded, and no example is seen twice; a
    shard may be empty where a batch has fewer examples than there are ranks.
    """

    def __init__(
        self,
        num_examples: int,
        batch_size: int,
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.num_examples = integer("num_examples", num_examples)
        self.batch_size = integer("batch_size", batch_size)
        self.seed = integer("seed", seed, least=0)
        self.rank = integer("rank", rank, least=0)
        self.world_size = integer("world_size", world_size)
        if self.rank >= self.world_size:
            raise ValueError(f"rank must be in 0..{world_size - 1}, not {rank!r}.")
        self.epoch = self.position = 0

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return -(-self.num_examples // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        # Seed 1, epoch 0 must not repeat the order of seed 0, epoch 1.
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(self.num_examples, generator=generator)
        batches = order.split(self.batch_size)[self.position :]
        for number, batch in enumerate(batches, start=self.position):
            if self.position != number:
                raise RuntimeError(
                    "Two loops over one ShardSampler: take two samplers."
                )
            self.position += 1
            yield batch.tensor_split(self.world_size)[self.rank].tolist()
        self.epoch, self.position = self.epoch + 1, 0

    def size(self, batch: int) -> int:
        """The number of examples in batch `batch` (0, 1 ...) over all ranks."""
        return min(self.batch_size, self.num_examples - batch * self.batch_size)

    def state_dict(self) -> dict[str, Any]:
        """The place in the data, and what the order of the data depends on."""
        names = ("num_examples", "batch_size", "seed", "epoch", "position")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to the place in `state`; raises ValueError if its order is another."""
        for name in ("num_examples", "batch_size", "seed"):
            ours, theirs = getattr(self, name), state.get(name)
            if ours != theirs:
                raise ValueError(
                    f"This sampler has {name} {ours}, the saved one {theirs}."
                )
        epoch = integer("epoch", state["epoch"], least=0)
        position = integer("position", state["position"], least=0)
        if position > len(self):
            raise ValueError(
                f"position is {position}, but there are {len(self)} batches."
            )
        self.epoch, self.position = epoch, position
