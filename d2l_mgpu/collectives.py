"""All-reduce between processes: the one to use, and four that show how it can be done.

The four are written with messages from one rank to another and nothing else. Each leaves the same
bits on all ranks, because every number is summed once, on one rank, and then copied. They differ
in how many messages follow one another, and in how many bytes the busiest rank sends; with k ranks
and S bytes:

==================== =================== ============================= =====================
function             rounds of messages  bytes that the busiest sends  source
==================== =================== ============================= =====================
all_reduce_at_root   2 (k - 1)           (k - 1) S
all_reduce_tree      2 ceil(log2 k)      ceil(log2 k) S                Thakur et al. (2005)
all_reduce_sharded   2 (k - 1)           2 (k - 1) / k S               Li et al. (2014)
all_reduce_ring      2 (k - 1)           2 (k - 1) / k S               Patarasuk, Yuan (2009)
==================== =================== ============================= =====================

The sharded one and the ring send equally much. But in the ring each rank hears from one neighbor
only, while in the other all ranks write to one at the same time.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


def all_reduce(tensor: Tensor) -> None:
    """Overwrite `tensor` with its sum over all processes, on each of them.

    Gloo walks through the memory of a view (every other column, say) as if it were contiguous,
    and gives wrong sums without a word. So such a tensor travels as a contiguous copy.
    """
    travelling = tensor.contiguous()  # the tensor itself where it is contiguous already
    dist.all_reduce(travelling)
    if travelling is not tensor:
        tensor.copy_(travelling)


@dataclass
class Sent:
    """What this rank has sent: the number of messages and of bytes."""

    messages: int = 0
    num_bytes: int = 0

    def post(self, piece: Tensor, to: int) -> dist.Work | None:
        """Start to send a contiguous `piece` to rank `to`; wait for the result before changing it.

        An empty piece is not sent at all, and the receiver does not wait for it.
        """
        if piece.numel() == 0:
            return None
        self.messages += 1
        self.num_bytes += piece.nbytes
        return dist.isend(piece, to)


def receive(piece: Tensor, source: int) -> None:
    """Overwrite a contiguous `piece` with what rank `source` has posted."""
    if piece.numel():
        dist.recv(piece, source)


def wait(*posted: dist.Work | None) -> None:
    """Wait until what was posted has left, so that its memory may be written to."""
    for work in posted:
        if work is not None:
            work.wait()


def all_reduce_at_root(tensor: Tensor, sent: Sent) -> None:
    """Overwrite `tensor` with its sum over all ranks: rank 0 collects, sums, and sends it back."""
    rank, others = dist.get_rank(), range(1, dist.get_world_size())
    travelling = tensor.contiguous()
    if rank == 0:
        term = torch.empty_like(travelling)
        for other in others:
            receive(term, other)
            travelling += term
        wait(*[sent.post(travelling, other) for other in others])
    else:
        wait(sent.post(travelling, 0))
        receive(travelling, 0)
    tensor.copy_(travelling)


def all_reduce_tree(tensor: Tensor, sent: Sent) -> None:
    """Overwrite `tensor` with its sum over all ranks: pairs sum, then pairs of pairs, and the
    result returns the same way. Any number of ranks: who has no partner waits for the next round.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    travelling = tensor.contiguous()
    term = torch.empty_like(travelling)
    distance, children = 1, []
    while distance < world_size and rank % (2 * distance) == 0:
        if rank + distance < world_size:
            receive(term, rank + distance)
            travelling += term
            children.append(rank + distance)
        distance *= 2
    if rank > 0:
        wait(sent.post(travelling, rank - distance))
        receive(travelling, rank - distance)
    wait(*[sent.post(travelling, child) for child in reversed(children)])
    tensor.copy_(travelling)


def all_reduce_sharded(tensor: Tensor, sent: Sent) -> None:
    """Overwrite `tensor` with its sum over all ranks: each rank sums one shard for all of them.

    This is a parameter server on every rank.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    shards = list(tensor.contiguous().view(-1).tensor_split(world_size))
    others = [(rank + i) % world_size for i in range(1, world_size)]  # not all to rank 0 first
    posted = [sent.post(shards[other], other) for other in others]
    total, term = shards[rank].clone(), torch.empty_like(shards[rank])
    for source in range(world_size):
        if source != rank:
            receive(term, source)
            total += term
    wait(*posted)
    shards[rank] = total
    posted = [sent.post(total, other) for other in others]
    for other in others:
        receive(shards[other], other)
    wait(*posted)
    tensor.copy_(torch.cat(shards).view_as(tensor))


def all_reduce_ring(tensor: Tensor, sent: Sent) -> None:
    """Overwrite `tensor` with its sum over all ranks, which stand in a ring and only write to the
    right: each shard goes around once to be summed, and once more to be copied.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    travelling = tensor.contiguous()
    shards = travelling.view(-1).tensor_split(world_size)
    for i in range(world_size - 1):  # reduce-scatter: in the end shard rank + 1 is complete here
        posted = sent.post(shards[(rank - i) % world_size], right)
        shard = shards[(rank - i - 1) % world_size]
        term = torch.empty_like(shard)
        receive(term, left)
        shard += term
        wait(posted)
    for i in range(world_size - 1):  # all-gather
        posted = sent.post(shards[(rank + 1 - i) % world_size], right)
        receive(shards[(rank - i) % world_size], left)
        wait(posted)
    tensor.copy_(travelling)


ALL_REDUCES = {
    "at root": all_reduce_at_root,
    "tree": all_reduce_tree,
    "sharded": all_reduce_sharded,
    "ring": all_reduce_ring,
}
"""The four ways by name; each takes a tensor, and a `Sent` in which it counts."""
