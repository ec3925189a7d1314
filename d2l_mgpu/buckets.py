"""Our own overlapped data parallelism: gradients are reduced in buckets while backward
still runs.

`Bucketed` does what `DistributedDataParallel` (DDP) does (Li et al., 2020), in Python,
but you say when backward is over: you call `finish()`, where DDP hooks into the end of
backward. Every rank makes one, of the same `net`; making it is a collective. It raises
ValueError for a net without weights to train, or with lazy ones or sparse gradients,
for limits below 1 byte, and for ranks that do not have the same, and RuntimeError
outside a process group.

A gradient is a view into a bucket, which the next backward overwrites; `zero_grad`
works either way. A parameter that a rank did not use counts there with a gradient of
zeros; if no rank used it, its `grad` stays None, as with `DistributedDataParallel(net,
find_unused_parameters=True)`, and the optimizer passes it by. Parameters that are
frozen at the start (`requires_grad=False`) are left out for ever. Buffers, such as the
statistics of BatchNorm, are not synchronized after the start; DDP copies those of rank
0 before each forward pass. To copy or save a replica, take its `module`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, zip_longest
from threading import Lock
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from d2l_mgpu.arguments import integer
from d2l_mgpu.collectives import broadcast

_hook_of = WeakTensorKeyDictionary()  # the hook of each parameter that is in a bucket


def views_into(flat: Tensor, params: list[nn.Parameter]) -> dict[nn.Parameter, Tensor]:
    """For each of `params` a view into `flat`, with its shape and its strides.

    Optimizers are slow where a gradient has other strides than its parameter, which may
    be channels last.
    """
    places = flat.split([p.numel() for p in params])
    return {
        p: place.as_strided(p.shape, torch.empty_like(p).stride())
        for p, place in zip(params, places, strict=True)
    }


class Bucket:
    """Parameters of one dtype and device whose gradients share one flat tensor, and so
    one all-reduce."""

    def __init__(self, params: list[nn.Parameter]) -> None:
        self.flat = params[0].new_zeros(sum(p.numel() for p in params))
        self.views = views_into(self.flat, params)
        self.missing = set(params)  # those that have not been put in this step
        self.unused: list[nn.Parameter] = []  # those without a gradient on this rank
        self.work: dist.Work | None = None

    def put(self, param: nn.Parameter) -> None:
        """Write this rank's share of the average gradient into the bucket; from now on
        `param.grad` is that view."""
        view = self.views[param]
        if param.grad is None:
            mark_unused(view)
            self.unused.append(param)
        else:
            torch.mul(param.grad, 1 / dist.get_world_size(), out=view)
            mark_used(view)
        if param.requires_grad:  # not frozen in the meantime
            param.grad = view
        self.missing.remove(param)

    def send(self) -> None:
        """Start the all-reduce, and do not wait for it."""
        self.work = dist.all_reduce(self.flat, async_op=True)

    def receive(self) -> None:
        """Wait for the sum, drop gradients that no rank had, prepare the next step."""
        assert self.work is not None
        self.work.wait()
        for param in self.unused:
            if unused_everywhere(self.views[param]):
                param.grad = None
        self.work, self.unused, self.missing = None, [], set(self.views)


def mark_unused(view: Tensor) -> None:
    """Say that this rank has no gradient here: a sum is -0.0 only if all its terms are
    -0.0."""
    view.fill_(-0.0)


def mark_used(view: Tensor) -> None:
    """Say that there is a gradient: adding 0.0 makes 0.0 of -0.0, and changes no other
    number."""
    first_number(view).add_(0.0)


def unused_everywhere(view: Tensor) -> bool:
    """Whether no rank had a gradient; `view` holds the sum."""
    mark = first_number(view).real
    return bool((mark.signbit() & (mark == 0)).all())


def first_number(view: Tensor) -> Tensor:
    """A view of one number, the first; of none if `view` has none."""
    return view[(slice(1),) * view.ndim]


def fill_buckets(
    params: Iterable[nn.Parameter], bucket_bytes: int, first_bucket_bytes: int
) -> list[Bucket]:
    """Gather `params`, in their order, into buckets; each has one dtype and one device.

    A bucket is closed once it has reached its limit, so its last member may take it far
    beyond: `first_bucket_bytes` for the first bucket of a dtype and device,
    `bucket_bytes` for others.
    """
    buckets: list[list[nn.Parameter]] = []
    last: dict[Any, list[nn.Parameter]] = {}  # the open one of each dtype and device
    limits: dict[Any, int] = {}
    for p in params:
        kind = p.dtype, p.device
        if kind not in last or sum(q.nbytes for q in last[kind]) >= limits[kind]:
            limits[kind] = bucket_bytes if kind in last else first_bucket_bytes
            last[kind] = []
            buckets.append(last[kind])
        last[kind].append(p)
    return [Bucket(bucket) for bucket in buckets]


class BucketQueue:
    """Buckets that are sent in their order: all ranks have to start the same
    all-reduces in the same order, even where their buckets fill up in different
    orders."""

    def __init__(self, buckets: list[Bucket]) -> None:
        self.buckets = buckets
        self.bucket_of = {p: bucket for bucket in buckets for p in bucket.views}

    def put(self, param: nn.Parameter) -> None:
        """Put a gradient into its bucket; send what is full."""
        self.bucket_of[param].put(param)
        self.send_full_buckets()

    def send_full_buckets(self) -> None:
        """Send the full buckets that no earlier bucket holds up."""
        for bucket in self.buckets:
            if bucket.missing:
                return
            if bucket.work is None:
                bucket.send()

    def finish(self) -> None:
        """Put the parameters for which no gradient has come, send the rest, receive
        all."""
        for bucket in self.buckets:
            for param in list(bucket.missing):
                bucket.put(param)
        self.send_full_buckets()
        for bucket in self.buckets:
            bucket.receive()


class Bucketed(nn.Module):
    """A replica of `net` whose gradients are averaged over all ranks while backward
    still runs.

    Rank 0's weights and buffers are copied to all ranks. Call `finish()` after each
    backward; then every `grad` is the average over the ranks, as with DDP, and a view
    into a bucket.
    """

    def __init__(
        self,
        net: nn.Module,
        bucket_bytes: int = 25 * 2**20,
        first_bucket_bytes: int = 2**20,
    ) -> None:
        super().__init__()
        params = params_to_train(net, bucket_bytes, first_bucket_bytes)
        for tensor in chain(net.parameters(), net.buffers()):
            broadcast(tensor)
        self.module = net  # the name that DDP gives it: a state_dict fits both
        # Backward begins with the last layers.
        buckets = fill_buckets(reversed(params), bucket_bytes, first_bucket_bytes)
        self.queue = BucketQueue(buckets)
        self.exchanging = True
        self.lock = Lock()  # backward has a thread for each device that net is on
        hook_into(net, params, self._on_gradient)  # register_post_accumulate_grad_hook

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """What `net` returns."""
        return self.module(*inputs, **options)

    def _on_gradient(self, param: nn.Parameter) -> None:
        """Called by autograd with the parameter when `param.grad` is complete."""
        with self.lock:
            check_first_gradient(self.queue, param)
            if self.exchanging:
                self.queue.put(param)

    def finish(self) -> None:
        """Complete the averages; call it once after each backward, on every rank.

        Raises RuntimeError if no gradient has come since the last time, or if a
        parameter that requires gradients has no bucket.
        """
        check_finish(self.queue, self.module)
        self.queue.finish()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, gradients add up on this rank; the first backward outside exchanges
        the sum."""
        before, self.exchanging = self.exchanging, False
        try:
            yield
        finally:
            self.exchanging = before


def hook_into(net: nn.Module, params: Iterable[nn.Parameter], hook: Callable) -> None:
    """Call `hook` with each of `params` whenever autograd has added to its gradient,
    and those of former replicas of `net` no longer: the newest one takes it over."""
    for p in net.parameters():
        if p in _hook_of:
            _hook_of.pop(p).remove()
    for p in params:
        _hook_of[p] = p.register_post_accumulate_grad_hook(hook)


def check_first_gradient(queue: BucketQueue, param: nn.Parameter) -> None:
    """Raise RuntimeError if `param` has been put in this step: backward has just added
    to what may be under way."""
    if param not in queue.bucket_of[param].missing:
        raise RuntimeError(
            "a gradient came twice before finish(), and this step is lost: call "
            "finish() after each backward, or run all but the last inside no_sync()."
        )


def check_finish(queue: BucketQueue, net: nn.Module) -> None:
    """Raise RuntimeError if a parameter of `net` was added or unfrozen after the start,
    or if no gradient has come: no backward, or one inside `no_sync`."""
    for name, p in net.named_parameters():
        if p.requires_grad and p not in queue.bucket_of:
            raise RuntimeError(
                f"parameter {name!r} requires gradients but belongs to no bucket, "
                "because it was added or unfrozen later: make a new Bucketed."
            )
    if not any(len(bucket.missing) < len(bucket.views) for bucket in queue.buckets):
        raise RuntimeError(
            "finish() found no new gradients: call it once after each backward "
            "that is not inside no_sync()."
        )


def params_to_train(
    net: nn.Module, bucket_bytes: int, first_bucket_bytes: int
) -> list[nn.Parameter]:
    """The parameters of `net` that require gradients, if `Bucketed` can work with its
    arguments."""
    if not dist.is_initialized():
        raise RuntimeError(
            "Bucketed averages over the ranks of a process group, and there is none: "
            "make it in a function that launch runs, or inside process_group."
        )
    limits = (
        integer("bucket_bytes", bucket_bytes),
        integer("first_bucket_bytes", first_bucket_bytes),
    )
    if any(nn.parameter.is_lazy(p) for p in net.parameters()):
        raise ValueError(
            "net has lazy layers: show it one example first, so that it knows the "
            "shapes of its parameters."
        )
    for name, module in net.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
            raise ValueError(
                f"The parameter {f'{name}.weight'.lstrip('.')!r} has sparse gradients, "
                "which fit into no bucket: make its layer with sparse=False."
            )
    params = [p for p in net.parameters() if p.requires_grad]
    if not params:
        raise ValueError(
            "net has no parameters that require gradients; Bucketed needs some."
        )
    ours: list[Any] = [("limits", *limits)]
    for name, x in chain(net.named_parameters(), net.named_buffers()):
        ours.append((name, tuple(x.shape), str(x.dtype), x.requires_grad))
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, ours)
    for rank, theirs in enumerate(everyone):
        for one, other in zip_longest(everyone[0], theirs):
            if one != other:
                raise ValueError(
                    f"rank {rank} makes Bucketed of {other}, but rank 0 of {one}: all "
                    "ranks need the same net and the same limits."
                )
    return params
