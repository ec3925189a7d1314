"""Four ways to all-reduce between processes, to learn from; `collectives.all_reduce` is to be used.

They are written with messages from one rank to another and nothing else. Each leaves the same
bits on all ranks, because each sum is completed on one rank, and then copied. They differ in how
many messages follow one another, if a rank has to do with one at a time, and in how many bytes the
busiest rank sends; with k ranks and S bytes:

==================== =================== ============================= =====================
function             rounds of messages  bytes that the busiest sends  source
==================== =================== ============================= =====================
all_reduce_at_root   2 (k - 1)           (k - 1) S
all_reduce_tree      2 ceil(log2 k)      ceil(log2 k) S                Thakur et al. (2005)
all_reduce_sharded   2 (k - 1)           2 (k - 1) / k S               Li et al. (2014)
all_reduce_ring      2 (k - 1)           2 (k - 1) / k S               Patarasuk, Yuan (2009)
==================== =================== ============================= =====================

The sharded one and the ring send equally much. But in the ring each rank hears from one neighbor
only, while in the other all ranks write to one at the same time. And a large shard of the ring
travels as several messages, so that the rounds overlap.

A tensor may have any shape, strides and device, and a dtype that gloo knows (int16 is none). What
travels is the tensor itself where it is contiguous and on the CPU, and else a copy that is.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass
class Sent:
    """What this rank has sent: the number of messages and of bytes."""

    messages: int = 0
    num_bytes: int = 0

    def isend(self, piece: Tensor, to: int) -> dist.Work | None:
        """Start to send a contiguous `piece` to rank `to`; wait for the result before changing it.

        An empty piece is not sent at all, and the receiver does not wait for it.
        """
        if piece.numel() == 0:
            return None
        self.messages += 1
        self.num_bytes += piece.nbytes
        return dist.isend(piece, to)


def irecv(piece: Tensor, source: int) -> dist.Work | None:
    """Start to receive what rank `source` sends into a contiguous `piece`; wait for the result
    before reading it. Messages of one rank arrive in the order in which it sends them."""
    return dist.irecv(piece, source) if piece.numel() else None


def wait(*started: dist.Work | None) -> None:
    """Wait until what is being sent has left, and what is being received is here."""
    for work in started:
        if work is not None:
            work.wait()


def receive(piece: Tensor, source: int) -> None:
    """Overwrite a contiguous `piece` with what rank `source` sends."""
    wait(irecv(piece, source))


@torch.no_grad()
def all_reduce_at_root(tensor: Tensor, sent: Sent) -> None:
    """Overwrite `tensor` with its sum over all ranks: rank 0 collects, sums, and sends it back."""
    rank, others = dist.get_rank(), range(1, dist.get_world_size())
    travelling = tensor.cpu().contiguous()
    if rank == 0:
        term = torch.empty_like(travelling)
        for other in others:
            receive(term, other)
            travelling += term
        wait(*[sent.isend(travelling, other) for other in others])
    else:
        wait(sent.isend(travelling, 0))
        receive(travelling, 0)
    tensor.copy_(travelling)


@torch.no_grad()
def all_reduce_tree(tensor: Tensor, sent: Sent) -> None:
    """Overwrite `tensor` with its sum over all ranks: pairs sum, then pairs of pairs, and the
    result returns the same way. Any number of ranks: who has no partner waits for the next round.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    travelling = tensor.cpu().contiguous()
    term = torch.empty_like(travelling)
    distance, children = 1, []
    while distance < world_size and rank % (2 * distance) == 0:
        if rank + distance < world_size:
            receive(term, rank + distance)
            travelling += term
            children.append(rank + distance)
        distance *= 2
    if rank > 0:
        wait(sent.isend(travelling, rank - distance))
        receive(travelling, rank - distance)
    wait(*[sent.isend(travelling, child) for child in reversed(children)])
    tensor.copy_(travelling)


@torch.no_grad()
def all_reduce_sharded(tensor: Tensor, sent: Sent) -> None:
    """Overwrite `tensor` with its sum over all ranks: each rank sums one shard for all of them.

    This is a parameter server on every rank.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    shards = list(tensor.cpu().contiguous().view(-1).tensor_split(world_size))
    others = [(rank + i) % world_size for i in range(1, world_size)]  # not all to rank 0 first
    posted = [sent.isend(shards[other], other) for other in others]
    total, term = shards[rank].clone(), torch.empty_like(shards[rank])
    for source in range(world_size):
        if source != rank:
            receive(term, source)
            total += term
    wait(*posted)
    shards[rank] = total
    posted = [sent.isend(total, other) for other in others]
    for other in others:
        receive(shards[other], other)
    wait(*posted)
    tensor.copy_(torch.cat(shards).view_as(tensor))


@torch.no_grad()
def all_reduce_ring(tensor: Tensor, sent: Sent, segment_bytes: int = 2**20) -> None:
    """Overwrite `tensor` with its sum over all ranks, which stand in a ring and only write to the
    right: each shard goes around once to be summed, and once more to be copied.

    A shard travels in segments of at most `segment_bytes`, so that one is summed while the next
    is on its way.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size == 1:
        return
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    travelling = tensor.cpu().contiguous()
    shards = travelling.view(-1).tensor_split(world_size)
    segment_numel = max(1, segment_bytes // tensor.element_size())
    n = max(1, -(-shards[0].numel() // segment_numel))  # segments of each shard
    order = [shards[(rank - i) % world_size] for i in range(2 * world_size - 1)]  # twice around
    own, *others = [shard.tensor_split(n) for shard in order]
    arriving = [segment for shard in others for segment in shard]
    num_sums = (world_size - 1) * n  # these arrive to be summed, the others to be copied
    terms = [torch.empty_like(segment) for segment in shards[0].tensor_split(n)]
    places = [terms[i % n][: segment.numel()] for i, segment in enumerate(arriving[:num_sums])]
    places += arriving[num_sums:]
    expected = [irecv(place, left) for place in places[:n]]
    posted = [sent.isend(segment, right) for segment in own]
    for i, segment in enumerate(arriving):
        wait(expected[i])
        if i < num_sums:
            segment += places[i]
        if i + n < len(arriving):  # all but the last shard go on to the next rank
            expected.append(irecv(places[i + n], left))
            posted.append(sent.isend(segment, right))
    wait(*posted)
    tensor.copy_(travelling)


ALL_REDUCES = {
    "at root": all_reduce_at_root,
    "tree": all_reduce_tree,
    "sharded": all_reduce_sharded,
    "ring": all_reduce_ring,
}
"""The four ways by name; each takes a tensor, and a `Sent` in which it counts."""
