"""Four all-reduce algorithms between processes, to learn from; to use, take
`collectives.all_reduce`.

They consist of messages from one rank to another and nothing else. Each leaves the same
bits on all ranks, because each sum is completed on one rank and then copied. They
differ in the number of rounds, if a rank handles one message at a time, and in the
bytes that the busiest rank sends. With k ranks and N bytes:

==================== =============== ===================== =======================
function             rounds          bytes of the busiest  source
==================== =============== ===================== =======================
all_reduce_at_root   2 (k - 1)       (k - 1) N
all_reduce_tree      2 ceil(log2 k)  ceil(log2 k) N        Thakur et al. (2005)
all_reduce_sharded   2 (k - 1)       2 (k - 1) / k N       Li et al. (2014)
all_reduce_ring      2 (k - 1)       2 (k - 1) / k N       Patarasuk, Yuan (2009)
==================== =============== ===================== =======================

The sharded algorithm and the ring send the same number of bytes. But in the ring each
rank receives from one neighbor only, while in the other all ranks send to one rank at
the same time. And a large shard of the ring is sent as several messages, which makes
the rounds overlap.

A tensor may have any shape, strides and device, and a dtype that gloo knows (int16 is
none). What is sent is the tensor itself if it is contiguous and on the CPU, otherwise a
copy that is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass
class Sent:
    """What this rank has sent: the number of messages and of bytes."""

    messages: int = 0
    num_bytes: int = 0

    def isend(self, piece: Tensor, to: int) -> dist.Work | None:
        """Start to send a contiguous `piece` to rank `to`; wait for the result before
        changing it.

        An empty piece is not sent at all, and the receiver does not wait for it.
        """
        if piece.numel() == 0:
            return None
        self.messages += 1
        self.num_bytes += piece.nbytes
        return dist.isend(piece, to)


def irecv(piece: Tensor, source: int) -> dist.Work | None:
    """Start to receive what rank `source` sends into a contiguous `piece`; wait for the
    result before reading it. Messages of one rank arrive in the order in which it sends
    them."""
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
    """Overwrite `tensor` with its sum over all ranks: rank 0 receives all terms, sums
    them and sends the sum to the others."""
    rank, others = dist.get_rank(), range(1, dist.get_world_size())
    total = tensor.cpu().contiguous()
    if rank == 0:
        term = torch.empty_like(total)
        for other in others:
            receive(term, other)
            total += term
        wait(*[sent.isend(total, other) for other in others])
    else:
        wait(sent.isend(total, 0))
        receive(total, 0)
    tensor.copy_(total)


@torch.no_grad()
def all_reduce_tree(tensor: Tensor, sent: Sent) -> None:
    """Overwrite `tensor` with its sum over all ranks: pairs sum, then pairs of pairs,
    and the sum returns along the same edges. A rank without a partner skips the round.
    """
    rank, k = dist.get_rank(), dist.get_world_size()
    total = tensor.cpu().contiguous()
    term = torch.empty_like(total)
    distance, children = 1, []
    while distance < k and rank % (2 * distance) == 0:
        if rank + distance < k:
            receive(term, rank + distance)
            total += term
            children.append(rank + distance)
        distance *= 2
    if rank > 0:
        wait(sent.isend(total, rank - distance))
        receive(total, rank - distance)
    wait(*[sent.isend(total, child) for child in reversed(children)])
    tensor.copy_(total)


@torch.no_grad()
def all_reduce_sharded(tensor: Tensor, sent: Sent) -> None:
    """Overwrite `tensor` with its sum over all ranks: each rank is the root of one
    shard."""
    rank, k = dist.get_rank(), dist.get_world_size()
    shards = list(tensor.cpu().contiguous().view(-1).tensor_split(k))
    others = [(rank + i) % k for i in range(1, k)]  # not all to rank 0 first
    posted = [sent.isend(shards[other], other) for other in others]
    total, term = shards[rank].clone(), torch.empty_like(shards[rank])
    for source in range(k):
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


def ring_rounds(shards: Sequence[Tensor], sent: Sent) -> Iterator[None]:
    """A ring all-reduce of the shards, one per rank and the first the longest. Each
    round starts its two messages and yields; the next call waits for what arrives.
    """
    rank, k = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % k, (rank + 1) % k
    term, posted = torch.empty_like(shards[0]), []
    for i in range(2 * (k - 1)):
        outgoing, incoming = shards[(rank - i) % k], shards[(rank - i - 1) % k]
        summing = i < k - 1
        place = term[: len(incoming)] if summing else incoming
        expected = irecv(place, left)
        posted.append(sent.isend(outgoing, right))
        yield
        wait(expected)
        if summing:
            incoming += place
    wait(*posted)


@torch.no_grad()
def all_reduce_ring(tensor: Tensor, sent: Sent, segment_bytes: int = 2**20) -> None:
    """Overwrite `tensor` with its sum over all ranks, which form a ring. Each shard is
    cut into segments of at most `segment_bytes`: while one is summed, others are on
    their way.
    """
    whole = tensor.cpu().contiguous()
    shards = whole.view(-1).tensor_split(dist.get_world_size())
    numel = max(1, segment_bytes // tensor.element_size())  # of a segment, at most
    n = max(1, -(-len(shards[0]) // numel))  # segments of each shard
    columns = zip(*[shard.tensor_split(n) for shard in shards], strict=True)
    rings = [ring_rounds(column, sent) for column in columns]
    for _ in zip_longest(*rings):  # the rings take turns, one round each
        pass
    tensor.copy_(whole)


ALL_REDUCES = {
    "at root": all_reduce_at_root,
    "tree": all_reduce_tree,
    "sharded": all_reduce_sharded,
    "ring": all_reduce_ring,
}
"""The four algorithms by name; each takes a tensor, and a `Sent` in which it counts."""
