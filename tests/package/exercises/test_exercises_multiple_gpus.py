"""The checkers of the chapter on training from scratch tell right attempts from wrong ones."""

import pytest
import torch

from d2l_mgpu import allreduce, lenet, loss, split_batch
from d2l_mgpu.exercises.multiple_gpus import Links
from d2l_mgpu.scratch import sgd

# sharded-allreduce


def sum_and_share(tensors, owner, send):
    others = [rank for rank in range(len(tensors)) if rank != owner]
    for rank in others:
        tensors[owner].add_(send(tensors[rank], rank, owner))
    for rank in others:
        tensors[rank].copy_(send(tensors[owner], owner, rank))


def pieces_everywhere(gradients, send):
    k = len(gradients)
    for copies in zip(*gradients, strict=True):
        pieces = [g.flatten().tensor_split(k) for g in copies]
        for owner in range(k):
            sum_and_share([mine[owner] for mine in pieces], owner, send)


def everything_on_device_0(gradients, send):
    for copies in zip(*gradients, strict=True):
        sum_and_share(copies, 0, send)


def whole_parameters_in_turn(gradients, send):
    for i, copies in enumerate(zip(*gradients, strict=True)):
        sum_and_share(copies, i % len(gradients), send)


def forgets_the_last_device(gradients, send):
    pieces_everywhere(gradients[:-1], send)


def rebinds(gradients, send):
    copies = [[g.clone() for g in ours] for ours in gradients]
    pieces_everywhere(copies, send)
    for ours, new in zip(gradients, copies, strict=True):
        ours[:] = new


def reads_the_neighbours_memory(gradients, send):
    for copies in zip(*gradients, strict=True):
        allreduce(copies)


def test_an_all_reduce_of_pieces_is_right(verdict):
    assert verdict("sharded-allreduce", pieces_everywhere).startswith("Right: ")


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (everything_on_device_0, "does all the adding alone"),
        (whole_parameters_in_turn, "One parameter is much larger"),
        (forgets_the_last_device, "does not hold the sum"),
        (rebinds, "into the very tensor"),
        (reads_the_neighbours_memory, "only 0 bytes were sent"),
        (lambda gradients, send: send(gradients[0][0], 1, 1), "need not send anything to itself"),
    ],
)
def test_a_wrong_all_reduce_is_told_what_went_wrong(verdict, attempt, reason):
    answer = verdict("sharded-allreduce", attempt)
    assert answer.startswith("Not yet: ") and reason in answer


def test_links_hand_out_copies_and_count_bytes_at_both_ends():
    links, x = Links(3), torch.ones(5)
    links.send(x, 2, 0).zero_()
    assert links.carried == [20, 0, 20] and x.sum() == 5


# accuracy-by-class


@torch.no_grad()
def count_then_divide(data_iter, device_params, devices):
    right, seen = torch.zeros(10), torch.zeros(10)
    for X, y in data_iter:
        for X_, y_, params in zip(*split_batch(X, y, devices), device_params, strict=True):
            right += y_[lenet(X_, params).argmax(dim=1) == y_].bincount(minlength=10).cpu()
            seen += y_.bincount(minlength=10).cpu()
    return right / seen


def count_where_it_is(data_iter, device_params, devices):
    seen = torch.zeros(10)
    for X, y in data_iter:
        for _, y_ in zip(*split_batch(X, y, devices), strict=True):
            seen += y_.bincount(minlength=10)
    return seen


def on_device_0(data_iter, device_params, devices):
    return count_then_divide(data_iter, device_params[:1], devices[:1])


def mean_over_batches(data_iter, device_params, devices, empty=float("nan")):
    each = [count_then_divide([batch], device_params, devices) for batch in data_iter]
    return torch.stack(each).nan_to_num(empty).mean(dim=0)


def mean_over_batches_with_empty_classes_as_zero(data_iter, device_params, devices):
    return mean_over_batches(data_iter, device_params, devices, empty=0.0)


def one_figure(data_iter, device_params, devices):
    return count_then_divide(data_iter, device_params, devices).mean()


def test_counting_first_and_dividing_once_is_right(verdict):
    assert verdict("accuracy-by-class", count_then_divide).startswith("Right: ")


def test_the_result_may_be_a_list(verdict):
    def as_list(*arguments):
        return count_then_divide(*arguments).tolist()

    assert verdict("accuracy-by-class", as_list).startswith("Right: ")


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (on_device_0, "by the replica that gets its shard"),
        (mean_over_batches, "gets nan"),
        (mean_over_batches_with_empty_classes_as_zero, "counted as much as any other"),
        (one_figure, "ten fractions"),
        (count_where_it_is, "found at least two devices, cpu and lazy:0!"),
    ],
)
def test_a_wrong_evaluation_is_told_what_went_wrong(verdict, attempt, reason):
    answer = verdict("accuracy-by-class", attempt)
    assert answer.startswith("Not yet: ") and reason in answer


# clipping


@torch.no_grad()
def clip(params, max_norm):
    norm = torch.stack([p.grad.norm() for p in params]).norm()
    for p in params:
        p.grad.mul_((max_norm / norm).clamp(max=1))


def clipped_train_batch(before=None, after=None, skip_sum=False):
    """A training step that clips shards to `before`, or the sum to `after(batch size)`."""

    def train_batch(X, y, device_params, devices, lr, max_norm):
        shards = zip(*split_batch(X, y, devices), device_params, strict=True)
        for X_, y_, params in shards:
            loss(lenet(X_, params), y_).sum().backward()
            if before is not None:
                clip(params, before(max_norm, len(y_)))
        if not skip_sum:
            for replicas in zip(*device_params, strict=True):
                allreduce([p.grad for p in replicas])
        for params in device_params:
            if after is not None:
                clip(params, after(max_norm, len(X)))
            sgd(params, lr, batch_size=len(X))

    return train_batch


def test_clipping_the_sum_to_the_batch_size_times_the_norm_is_right(verdict):
    attempt = clipped_train_batch(after=lambda max_norm, n: max_norm * n)
    assert verdict("clipping", attempt).startswith("Right: ")


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (clipped_train_batch(), "max_norm=0.5, step 1: your step follows a gradient of norm"),
        (clipped_train_batch(after=lambda c, n: c), "1 device(s), max_norm=0.5"),
        (clipped_train_batch(before=lambda c, n: c * n), "3 device(s), max_norm=0.5"),
        (clipped_train_batch(after=lambda c, n: c * n, skip_sum=True), "replicas 0 and 1 differ"),
    ],
)
def test_a_wrong_way_to_clip_is_told_what_went_wrong(verdict, attempt, reason):
    answer = verdict("clipping", attempt)
    assert answer.startswith("Not yet: ") and reason in answer
