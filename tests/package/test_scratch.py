"""Data parallelism from scratch equals one device, for any number of replicas and any batch."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2l_mgpu import (
    allreduce,
    assert_replicas_identical,
    get_params,
    lenet,
    lenet_params,
    loss,
    prove_equals_one_device,
    scatter,
    scratch,
    split_batch,
    train_batch,
)

CPU = torch.device("cpu")
ANY_K = [1, 2, 3, 4, 7]


@pytest.mark.parametrize("k", ANY_K)
@pytest.mark.parametrize("batch_size", [1, 2, 7, 16])  # smaller than k, uneven, even
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_k_replicas_take_the_same_steps_as_one_device(k, batch_size, dtype):
    prove_equals_one_device(train_batch, get_params, [CPU] * k, batch_size=batch_size, dtype=dtype)


def test_train_batch_returns_the_mean_loss_of_the_batch():
    params = [get_params(lenet_params(), CPU) for _ in range(2)]
    X, y = torch.zeros(5, 1, 28, 28), torch.tensor([0, 1, 2, 3, 4])
    mean = train_batch(X, y, params, [CPU, CPU], lr=0.0)
    assert mean.item() == pytest.approx(torch.tensor(10.0).log().item())  # logits are all zero


def test_the_all_reduce_is_an_argument_that_gets_the_gradients_of_one_parameter_at_a_time():
    calls, params = [], [get_params(lenet_params(), CPU) for _ in range(3)]

    def recording_allreduce(data):
        calls.append([x.shape for x in data])
        allreduce(data)

    X, y = torch.rand(4, 1, 28, 28), torch.arange(4)
    train_batch(X, y, params, [CPU] * 3, lr=0.1, allreduce=recording_allreduce)
    assert calls == [[p.shape] * 3 for p in lenet_params()]
    assert_replicas_identical(params)


def test_a_step_without_the_sum_of_the_gradients_fails_the_proof():
    step = partial(train_batch, allreduce=lambda gradients: None)
    with pytest.raises(AssertionError, match="replicas 0 and 1 differ by"):
        prove_equals_one_device(step, get_params, [CPU] * 2)


def test_get_params_always_copies_and_collects_gradients_from_none():
    params = lenet_params()
    copies = get_params(params, CPU)
    assert_replicas_identical([params, copies])  # equal values in storage of their own
    assert all(p.is_leaf and p.requires_grad and p.grad is None for p in copies)


shapes = st.lists(st.integers(0, 4), max_size=3)


@given(shape=shapes, k=st.integers(1, 6), seed=st.integers(0, 99))
def test_allreduce_leaves_the_sum_in_the_very_tensors_it_was_given(shape, k, seed):
    generator = torch.Generator().manual_seed(seed)
    data = [torch.randint(-9, 9, shape, generator=generator) for _ in range(k)]
    pointers, total = [x.data_ptr() for x in data], sum(x.clone() for x in data)
    allreduce(data)
    assert all(torch.equal(x, total) for x in data)
    assert [x.data_ptr() for x in data] == pointers


@given(rows=st.integers(0, 5), columns=st.integers(0, 5), k=st.integers(1, 4))
def test_allreduce_is_right_for_views_that_are_not_contiguous(rows, columns, k):
    wholes = [torch.arange(2.0 * rows * columns).reshape(columns, 2 * rows) + i for i in range(k)]
    views = [whole.T[::2] for whole in wholes]
    kept = [whole.T[1::2].clone() for whole in wholes]
    total = sum(view.clone() for view in views)
    allreduce(views)
    assert all(torch.equal(view, total) for view in views)
    assert all(torch.equal(w.T[1::2], k_) for w, k_ in zip(wholes, kept, strict=True))


def test_allreduce_refuses_tensors_of_different_shapes():
    with pytest.raises(ValueError, match=r"one shape.*\(2,\).*\(1, 2\)"):
        allreduce([torch.zeros(2), torch.zeros(1, 2)])


@given(n=st.integers(1, 40), k=st.integers(1, 9))
def test_a_split_batch_has_one_shard_per_device_and_loses_and_reorders_nothing(n, k):
    X, y = torch.arange(2.0 * n).reshape(n, 2), torch.arange(n)
    X_shards, y_shards = split_batch(X, y, [CPU] * k)
    assert len(X_shards) == len(y_shards) == k
    assert torch.equal(torch.cat(X_shards), X) and torch.equal(torch.cat(y_shards), y)
    sizes = [len(shard) for shard in y_shards]
    assert [len(shard) for shard in X_shards] == sizes and max(sizes) - min(sizes) <= 1


def test_scatter_cuts_views_that_are_not_contiguous():
    X = torch.arange(20).reshape(5, 4).T
    assert torch.equal(torch.cat(scatter(X, [CPU] * 3)), X)


def test_examples_and_labels_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="5 examples but y has 4 labels"):
        split_batch(torch.zeros(5, 1), torch.zeros(4), [CPU] * 2)


@pytest.mark.parametrize("shape", [(0,), (3, 1), (3, 8, 8)])
def test_labels_that_are_not_one_for_each_example_are_refused_in_training_and_evaluation(shape):
    params = [get_params(lenet_params(), CPU) for _ in range(2)]
    X, y = torch.zeros(shape[0], 1, 28, 28), torch.zeros(shape, dtype=torch.int64)
    with pytest.raises(ValueError, match=rf"one label for each example.*of y is \({shape[0]},"):
        train_batch(X, y, params, [CPU] * 2, lr=0.1)
    with pytest.raises(ValueError, match="one label for each example"):
        scratch.evaluate_accuracy([(X, y)], params, [CPU] * 2)


@pytest.mark.parametrize("empty", [(True, False), (False, True)])
def test_data_without_a_batch_are_refused(empty):
    def load_data(batch_size):
        return [
            [] if none else batches for none, batches in zip(empty, small_data(96), strict=True)
        ]

    with pytest.raises(ValueError, match="The data, a list, holds no batch"):
        scratch.train(1, 96, 0.1, num_epochs=1, load_data=load_data)


def test_data_for_one_epoch_only_are_refused_before_the_first():
    with pytest.raises(ValueError, match=r"training data is a list_iterator.*only once"):
        scratch.train(1, 48, 0.1, num_epochs=2, load_data=lambda n: map(iter, small_data(n)))


def test_fewer_replicas_than_devices_are_refused_and_nothing_is_updated():
    params = get_params(lenet_params(), CPU)
    with pytest.raises(ValueError, match="1 replicas cannot train on 2 devices"):
        train_batch(torch.zeros(4, 1, 28, 28), torch.zeros(4).long(), [params], [CPU, CPU], lr=1.0)
    assert_replicas_identical([lenet_params(), params])


@pytest.mark.parametrize("k", [1, 2, 3])
def test_every_replica_evaluates_its_own_shard_and_every_example_counts_once(k, monkeypatch):
    params = [get_params(lenet_params(), CPU) for _ in range(k)]
    seen = []
    original = scratch.lenet
    monkeypatch.setattr(
        scratch, "lenet", lambda X, p: seen.append((id(p), len(X))) or original(X, p)
    )
    X, y = torch.rand(8, 1, 28, 28), torch.arange(8)
    expected = (original(X, params[0]).argmax(dim=1) == y).double().mean().item()
    result = scratch.evaluate_accuracy([(X, y)], params, [CPU] * k)
    assert result == pytest.approx(expected)
    assert seen == [(id(p), len(s)) for p, s in zip(params, X.tensor_split(k), strict=True)]


def small_data(batch_size, n=96):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 10
    X = torch.rand(n, 1, 28, 28, generator=generator) * 0.1 + y[:, None, None, None] / 10
    batches = list(zip(X.split(batch_size), y.split(batch_size), strict=True))
    return batches, batches


def test_training_with_one_and_with_three_replicas_gives_the_same_history(capsys):
    one, three = (scratch.train(k, 32, 0.05, num_epochs=2, load_data=small_data) for k in (1, 3))
    assert [e.number for e in one] == [1, 2]
    for a, b in zip(one, three, strict=True):
        assert a.loss == pytest.approx(b.loss, abs=1e-4)
        assert a.accuracy == pytest.approx(b.accuracy, abs=0.02)
    assert "3 replicas on" in capsys.readouterr().out or torch.accelerator.device_count() >= 3


def test_the_loss_of_an_epoch_is_the_mean_over_examples_also_when_the_last_batch_is_smaller():
    (epoch,) = scratch.train(1, 40, lr=0.0, num_epochs=1, load_data=small_data)
    X, y = (torch.cat(parts) for parts in zip(*small_data(40)[0], strict=True))
    assert epoch.loss == pytest.approx(loss(lenet(X, lenet_params()), y).mean().item(), rel=1e-5)
