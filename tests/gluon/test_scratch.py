"""Data parallelism from scratch in MXNet: k contexts equal one, whatever the shards."""

import builtins
from functools import partial

import mxnet as mx
import numpy as onp
import pytest
from mxnet import np, npx

from d2l_mgpu.gluon import (
    assert_replicas_identical,
    data,
    describe,
    evaluate_accuracy,
    get_devices,
    get_params,
    largest_difference,
    lenet,
    lenet_params,
    load_data_fashion_mnist,
    loss,
    prove_equals_one_device,
    scatter,
    scratch,
    split_batch,
    train_batch,
)
from d2l_mgpu.gluon.proofs import as_tensors
from d2l_mgpu.gluon.scratch import allreduce

CPU = mx.cpu(0)


def devices(k: int) -> list[mx.Context]:
    return get_devices(k, quiet=True)


def prove(k: int = 4, batch_size: int = 5, where: list[mx.Context] | None = None) -> float:
    """The proof, through names looked up now, so that it runs what was planted."""
    return prove_equals_one_device(
        scratch.train_batch, scratch.get_params, where or devices(k), batch_size=batch_size
    )


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("batch_size", [1, 7, 12])  # fewer than devices, uneven, even
def test_k_contexts_equal_one(k, batch_size):
    assert prove(k, batch_size) < 1e-12


def test_replicas_that_share_a_context_equal_one_device_too():
    assert prove(where=[CPU] * 3) < 1e-12


def test_the_proof_in_float32_allows_for_its_rounding():
    assert prove_equals_one_device(train_batch, get_params, devices(3), dtype="float32") < 1e-5


def rebinding_allreduce(data):
    """Erratum 1: the sum reaches device 0 only; the other entries of the list are rebound."""
    for x in data[1:]:
        data[0][:] += x.as_in_ctx(data[0].ctx)
    for i in range(1, len(data)):
        data[i] = data[0].copyto(data[i].ctx)


def aliasing_get_params(params, device):
    """Erratum 2, translated: `as_in_ctx` copies only from one context to another."""
    replicas = [p.as_in_ctx(device) for p in params]
    for p in replicas:
        p.attach_grad()
    return replicas


def no_allreduce(data):
    """Pitfall 2: nobody sums, so each replica follows its own shard."""


def forgetful_allreduce(data):
    """Pitfall 2 again, harder to see: the last replica is forgotten in the broadcast."""
    total = sum(x.as_in_ctx(data[0].ctx) for x in data)
    for x in data[:-1]:
        total.copyto(x)


def slices_of_equal_size(X, devices):
    """Erratum 3: five examples make five shards of one for four devices."""
    size = len(X) // len(devices)
    return [X[i : i + size].as_in_ctx(CPU) for i in range(0, len(X), size)]


def mean_of_means_loss(logits, y):
    """Pitfall 5: every shard weighs the same (its mean, times its size, whatever that is)."""
    return loss(logits, y).mean(keepdims=True) * 5 / 2


def lenient_zip(*iterables, strict=False):
    """Erratum 3: whoever has no partner is left out without a word."""
    return builtins.zip(*iterables, strict=False)


ONE_CONTEXT = [CPU] * 4
FAULTS = {
    "erratum 1: all-reduce rebinds the list": (
        {"allreduce": rebinding_allreduce},
        devices(4),
        AssertionError,
        "replicas 0 and 1 differ",
    ),
    "erratum 2: replicas alias one array": (
        {"get_params": aliasing_get_params},
        ONE_CONTEXT,
        AssertionError,
        "one is an alias",
    ),
    "erratum 3: zip leaves a shard out": (
        {"scatter": slices_of_equal_size, "zip": lenient_zip},
        ONE_CONTEXT,
        AssertionError,
        "away from what one device computes",
    ),
    "erratum 3: one shard too many, and zip is strict": (
        {"scatter": slices_of_equal_size},
        ONE_CONTEXT,
        ValueError,
        "zip",
    ),
    "pitfall 2: no all-reduce": (
        {"allreduce": no_allreduce},
        devices(4),
        AssertionError,
        "replicas 0 and 1 differ",
    ),
    "pitfall 2: one replica forgotten": (
        {"allreduce": forgetful_allreduce},
        devices(4),
        AssertionError,
        "replicas 0 and 3 differ",
    ),
    "pitfall 5: mean of means": (
        {"loss": mean_of_means_loss},
        devices(2),
        AssertionError,
        "away from what one device computes",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_proof_catches(fault, monkeypatch):
    planted, where, error, says = FAULTS[fault]
    prove(where=where)  # sound as it is
    for name, function in planted.items():
        monkeypatch.setattr(scratch, name, function, raising=name != "zip")
    with pytest.raises(error, match=says):
        prove(where=where)


def test_replicas_are_copies_also_in_the_context_where_the_parameters_are():
    params = lenet_params()
    for device in devices(2):
        copies = get_params(params, device)
        assert all(p.ctx == device and (p.grad == 0).all() for p in copies)
        assert_replicas_identical([params, copies])  # equal values in storage of their own


def test_allreduce_leaves_the_sum_in_the_very_arrays_it_was_given():
    for shape in ((), (3,), (2, 0), (4, 5)):
        arrays = tuple(np.random.normal(size=shape, ctx=d) for d in devices(3))
        addresses = [x.data_ptr() for x in as_tensors(arrays)]
        expected = sum(x.asnumpy() for x in arrays)
        allreduce(arrays)
        assert all(abs(x.asnumpy() - expected).max(initial=0) < 1e-6 for x in arrays)
        assert [x.data_ptr() for x in as_tensors(arrays)] == addresses


def test_allreduce_refuses_arrays_of_different_shapes():
    with pytest.raises(ValueError, match=r"one shape.*\(2,\).*\(1, 2\)"):
        allreduce([np.zeros(2), np.zeros((1, 2))])


@pytest.mark.parametrize("n", [1, 3, 7, 8])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_a_split_batch_has_one_shard_per_device_and_loses_and_reorders_nothing(n, k):
    X, y = np.arange(2 * n).reshape(n, 2), np.arange(n)
    X_shards, y_shards = split_batch(X, y, devices(k))
    assert [shard.ctx for shard in X_shards] == [shard.ctx for shard in y_shards] == devices(k)
    for whole, shards in ((X, X_shards), (y, y_shards)):
        together = np.concatenate([shard.as_in_ctx(CPU) for shard in shards])
        assert largest_difference([together], [whole]) == 0
    sizes = [len(shard) for shard in y_shards]
    assert [len(shard) for shard in X_shards] == sizes and max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)  # as torch.tensor_split cuts


def test_scatter_keeps_the_dtype():
    assert [shard.dtype for shard in scatter(np.arange(3, dtype="int64"), devices(2))] == [
        "int64"
    ] * 2


def test_examples_and_labels_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="5 examples but y has 4 labels"):
        split_batch(np.zeros((5, 1)), np.zeros(4), devices(2))


@pytest.mark.parametrize("shape", [(0,), (3, 1)])
def test_labels_that_are_not_one_for_each_example_are_refused_in_training_and_evaluation(shape):
    params = [get_params(lenet_params(), device) for device in devices(2)]
    X, y = np.zeros((shape[0], 1, 28, 28)), np.zeros(shape, dtype="int64")
    with pytest.raises(ValueError, match=rf"one label for each example.*of y is \({shape[0]},"):
        train_batch(X, y, params, devices(2), lr=0.1)
    with pytest.raises(ValueError, match="one label for each example"):
        evaluate_accuracy([(X, y)], params, devices(2))


def test_data_that_are_empty_or_end_with_the_first_epoch_are_refused():
    train = partial(scratch.train, 1, 48, 0.1, num_epochs=2)
    for pair in (([], small_data(48)[1]), (small_data(48)[0], [])):
        with pytest.raises(ValueError, match="The data, a list, holds no batch"):
            train(load_data=lambda n, pair=pair: pair)
    with pytest.raises(ValueError, match=r"training data is a generator.*only once"):
        train(load_data=lambda n: map(iter, small_data(n)))


def test_fewer_replicas_than_devices_are_refused_and_nothing_is_updated():
    params = get_params(lenet_params(), CPU)
    X, y = np.zeros((4, 1, 28, 28)), np.zeros(4, dtype="int64")
    with pytest.raises(ValueError, match="1 replicas cannot train on 2 devices"):
        train_batch(X, y, [params], devices(2), lr=1.0)
    assert_replicas_identical([lenet_params(), params])


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_every_replica_evaluates_its_own_shard_and_every_example_counts_once(k, monkeypatch):
    params = [get_params(lenet_params(), device) for device in devices(k)]
    seen = []
    monkeypatch.setattr(scratch, "lenet", lambda X, p: seen.append((id(p), len(X))) or lenet(X, p))
    X, y = np.random.uniform(size=(11, 1, 28, 28)), np.arange(11) % 10
    right = lenet(X, params[0]).argmax(axis=1).asnumpy() == y.asnumpy()
    batches = [(X[:8], y[:8]), (X[8:], y[8:])]  # the second has fewer examples than four devices
    assert evaluate_accuracy(batches, params, devices(k)) == pytest.approx(right.mean())
    assert seen == [
        (id(p), len(shard))
        for X_, _ in batches
        for p, shard in zip(params, scatter(X_, devices(k)), strict=True)
        if len(shard) > 0
    ]


def small_data(batch_size):
    return load_data_fashion_mnist(batch_size, num_train=96, num_test=40, source="generated")


def test_training_with_one_and_with_three_contexts_gives_the_same_history(capsys):
    one, three = (scratch.train(k, 32, 0.05, num_epochs=2, load_data=small_data) for k in (1, 3))
    assert [e.number for e in one] == [1, 2]
    for a, b in zip(one, three, strict=True):
        assert a.loss == pytest.approx(b.loss, abs=1e-4)
        assert a.accuracy == pytest.approx(b.accuracy, abs=0.05)
    assert "s an epoch on cpu(0), cpu(1), cpu(2)" in capsys.readouterr().out


def test_the_loss_of_an_epoch_is_the_mean_over_examples_also_when_the_last_batch_is_smaller():
    epochs = []
    history = scratch.train(
        1, 40, lr=0.0, num_epochs=1, load_data=small_data, on_epoch=epochs.append
    )
    X, y = (np.concatenate(parts) for parts in zip(*small_data(40)[0], strict=True))
    assert history == epochs
    expected = loss(lenet(X, lenet_params()), y).mean().item()
    assert history[0].loss == pytest.approx(expected, rel=1e-5)


def test_the_clock_is_read_when_all_queued_work_is_done(monkeypatch):
    """Before each reading of the clock stands a wait for the queue, with nothing in between."""
    events = []
    monkeypatch.setattr(scratch, "synchronize", lambda: events.append("wait"))
    monkeypatch.setattr(scratch.time, "perf_counter", lambda: events.append("clock") or 0.0)
    monkeypatch.setattr(scratch, "train_batch", lambda *a: events.append("step") or np.zeros(()))
    scratch.train(2, 96, 0.1, num_epochs=1, load_data=small_data)
    assert events == ["wait", "clock", "step", "wait", "clock"]


def test_without_a_wait_mxnet_has_only_queued_the_work():
    """`synchronize` raises what went wrong in the queue, which nobody had noticed before."""
    W = np.ones((4, 1, 3, 3))
    npx.convolution(np.zeros((0, 1, 8, 8)), W, np.zeros(4), kernel=(3, 3), num_filter=4)
    with pytest.raises(mx.MXNetError):
        scratch.synchronize()
    scratch.synchronize()  # it is told once


def test_no_epochs_and_no_devices_are_refused():
    with pytest.raises(ValueError, match=r"num_epochs must be an integer .* but it is 0\."):
        scratch.train(1, 8, 0.1, num_epochs=0, load_data=small_data)
    assert get_devices(onp.int64(2)) == devices(2)
    for number in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match=f"an integer of at least 1, but it is {number!r}"):
            get_devices(number)


def test_contexts_are_distinct_and_are_said_in_one_line(capsys):
    assert get_devices(2) == [mx.cpu(0), mx.cpu(1)]
    assert capsys.readouterr().out == "Running on cpu(0), cpu(1)\n"
    assert describe([CPU] * 3) == "3 replicas on cpu(0)"


def test_wrong_arguments_for_the_data_are_refused_in_the_words_of_pytorch():
    with pytest.raises(ValueError, match=r"batch_size must be an integer .* but it is 0\."):
        data.load_data_fashion_mnist(0, source="generated")


def test_importing_the_package_turns_the_numpy_interface_on():
    assert npx.is_np_array() and npx.is_np_shape()


@pytest.mark.parametrize(("std", "seed"), [(0.1, 0), (0.1, 1), (None, 1)])
def test_training_starts_from_the_weights_of_its_std_and_seed(std, seed):
    load_data = partial(load_data_fashion_mnist, num_train=96, num_test=8)
    (epoch,) = scratch.train(1, 96, 0.0, num_epochs=1, std=std, seed=seed, load_data=load_data)
    X, y = next(iter(load_data(96)[0]))
    expected = loss(lenet(X, lenet_params(std, seed)), y).mean().item()
    assert epoch.loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("k", "kind"), [(1, mx.gpu), (2, mx.gpu), (3, mx.cpu)])
def test_gpus_are_taken_where_there_are_enough(k, kind, monkeypatch):
    monkeypatch.setattr(mx.context, "num_gpus", lambda: 2)
    assert get_devices(k, quiet=True) == [kind(i) for i in range(k)]


def test_an_empty_list_of_devices_is_refused():
    with pytest.raises(ValueError, match="at least one device"):
        scatter(np.zeros((4, 2)), [])
