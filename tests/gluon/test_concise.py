"""Training with Gluon's Trainer equals one context, whatever the shards."""

from functools import partial

import mxnet as mx
import pytest
from mxnet import autograd, gluon, np, npx
from mxnet.gluon import nn

import d2l_mgpu.gluon
from d2l_mgpu.gluon import (
    assert_equals_one_device,
    assert_replicas_identical,
    concise,
    evaluate_accuracy_gpus,
    get_devices,
    init_weights,
    largest_difference,
    loss,
    resnet18,
    split_batch,
)
from tests.support.planting import planted

BATCHES = (7, 1, 2, 16)  # uneven, fewer than devices, even


def devices(k: int) -> list[mx.Context]:
    return get_devices(k, quiet=True)


def small_net() -> nn.Sequential:
    """A network without BatchNorm, whose statistics would depend on the shards."""
    net = nn.Sequential()
    net.add(nn.Conv2D(4, 3, activation="relu"), nn.Dense(16, activation="tanh"), nn.Dense(10))
    return net


def parameters(net: gluon.Block, device: mx.Context) -> list[np.ndarray]:
    return [p.data(device) for p in net.collect_params().values()]


def batch(n: int) -> tuple[np.ndarray, np.ndarray]:
    mx.random.seed(n)
    return np.random.normal(size=(n, 1, 8, 8)).astype("float64"), np.arange(n) % 10


def started(k: int) -> nn.Sequential:
    """A network in float64 on k contexts, always with the same weights."""
    net = small_net()
    init_weights(net, devices(k), std=0.3)
    net(np.zeros((1, 1, 8, 8)))  # weights exist from here on
    net.cast("float64")
    return net


def steps(k: int, train_batch=concise.train_batch, batches=BATCHES) -> list[list[np.ndarray]]:
    """The replicas after a step on each batch, all from the same start."""
    net = started(k)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    for n in batches:
        train_batch(*batch(n), net, devices(k), trainer)
    return [parameters(net, device) for device in devices(k)]


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_k_contexts_take_the_same_steps_as_autograd_alone(k):
    net = started(1)
    for n in BATCHES:
        X, y = batch(n)
        with autograd.record():
            mean_loss = loss(net(X), y).mean()
        mean_loss.backward()
        for p in net.collect_params().values():
            p.set_data(p.data() - 0.5 * p.grad())
    replicas = steps(k)
    assert_replicas_identical(replicas)
    assert_equals_one_device(replicas[0], steps(1)[0])
    # Gluon's optimizers keep lr / batch size in float32, whatever the parameters are
    assert largest_difference(replicas[0], parameters(net, devices(1)[0])) < 1e-6


def stale_train_batch(X, y, net, devices, trainer):
    """A context whose shard is empty is left out, as one would in plain Gluon."""
    shards = zip(*split_batch(X, y, devices), strict=True)
    with autograd.record():
        losses = [loss(net(X_), y_).sum() for X_, y_ in shards if len(y_) > 0]
    autograd.backward(losses)
    trainer.step(len(X))


def test_a_context_left_out_adds_its_last_gradient_again_and_the_proof_sees_it():
    uneven = partial(steps, batches=(7, 3))
    assert_equals_one_device(uneven(2, stale_train_batch)[0], uneven(1)[0])  # nobody is left out
    with pytest.raises(AssertionError, match="away from what one device computes"):
        assert_equals_one_device(steps(2, stale_train_batch)[0], steps(1)[0])


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("weight = 0.0", "weight = 1.0"),  # the borrowed example counts
        (").sum())\n", ").mean())\n"),  # mean of means
        ("trainer.step(len(X))", "trainer.step(len(X_shard))"),  # the size of one shard only
    ],
)
def test_the_proof_catches(right, wrong):
    faulty = planted(concise.train_batch, right, wrong)["train_batch"]
    with pytest.raises(AssertionError, match="away from what one device computes"):
        assert_equals_one_device(steps(3, faulty)[0], steps(1)[0])


def test_the_proof_catches_a_trainer_that_does_not_sum():
    def without_sum(X, y, net, devices, trainer):
        local = gluon.Trainer(trainer._params, "sgd", {"learning_rate": 0.5}, kvstore=None)
        concise.train_batch(X, y, net, devices, local)

    with pytest.raises(AssertionError, match="replicas 0 and 1 differ"):
        assert_replicas_identical(steps(2, without_sum))


def test_the_step_returns_the_mean_loss_of_the_batch():
    for k in (1, 2, 3):
        net, (X, y) = small_net(), batch(2)
        init_weights(net, devices(k), std=0.3)
        X = X.astype("float32")
        expected = loss(net(X), y).mean().item()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
        found = concise.train_batch(X, y, net, devices(k), trainer)
        assert found.item() == pytest.approx(expected, rel=1e-5) and found.ctx == devices(k)[0]


def test_weights_start_equal_on_all_contexts_and_the_same_again():
    net = small_net()
    starts = []
    for k in (2, 3, 2):
        init_weights(net, devices(k), std=0.5, seed=1)
        for device in devices(k):
            net(np.zeros((1, 1, 8, 8), ctx=device))
        starts.append([[x.copy() for x in parameters(net, device)] for device in devices(k)])
    fresh = small_net()
    init_weights(fresh, devices(1), std=0.5, seed=1)
    fresh(np.zeros((1, 1, 8, 8)))
    for replicas in (*starts, [parameters(fresh, mx.cpu(0))]):
        assert_replicas_identical(replicas)
        assert largest_difference(replicas[0], starts[0][0]) == 0
    weights, biases = starts[0][0][::2], starts[0][0][1::2]
    assert all((b == 0).all() for b in biases)
    assert weights[1].std().item() == pytest.approx(0.5, rel=0.1)


def test_batch_statistics_are_each_contexts_own_but_for_the_first_step():
    net = nn.Sequential()
    net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Dense(10))
    init_weights(net, devices(2), std=0.3)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

    def means() -> list[np.ndarray]:
        return net[1].running_mean.list_data()

    X, y = np.random.normal(size=(8, 1, 8, 8)), np.arange(8)
    concise.train_batch(X, y, net, devices(2), trainer)
    assert largest_difference(means()[:1], means()[1:]) == 0
    concise.train_batch(X, y, net, devices(2), trainer)
    assert largest_difference(means()[:1], means()[1:]) > 1e-4
    weights = [[p.data(d) for p in net.collect_params(".*weight").values()] for d in devices(2)]
    assert_replicas_identical(weights)
    init_weights(net, devices(2))
    assert all((mean == 0).all() for mean in means())


def test_saved_batch_statistics_are_the_mean_over_the_contexts(tmp_path):
    net = nn.BatchNorm(in_channels=2)
    net.initialize(ctx=devices(2))
    for i, mean in enumerate(net.running_mean.list_data()):
        mean[:] = i
    net.save_parameters(str(tmp_path / "net.params"))
    saved = npx.load(str(tmp_path / "net.params"))
    assert saved["running_mean"].tolist() == [0.5, 0.5]


class Counting(gluon.Block):
    """Predicts the class that the first pixel names, and counts the examples of each context."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.params.get("weight", shape=(1,), init="ones")
        self.seen: dict[mx.Context, int] = {}

    def forward(self, X):
        assert not autograd.is_training()
        self.seen[X.ctx] = self.seen.get(X.ctx, 0) + len(X)
        return npx.one_hot(X[:, 0], 10) * self.weight.data(X.ctx)


def labelled(*sizes: int):
    """Batches in which two predictions of three are right."""
    for size in sizes:
        y = np.arange(size) % 10
        yield np.where(np.arange(size) % 3 == 0, (y + 1) % 10, y)[:, None], y


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_each_context_evaluates_its_own_shard_and_every_example_counts_once(k):
    net = Counting()
    net.initialize(ctx=devices(k))
    assert evaluate_accuracy_gpus(net, labelled(12, 7, 1)) == pytest.approx((8 + 4 + 0) / 20)
    expected = [sum(n // k + (i < n % k) for n in (12, 7, 1)) for i in range(k)]
    assert [net.seen[device] for device in devices(k)] == expected


def test_too_few_shards_for_the_contexts_are_refused():
    def one_shard(X, y, devices):
        return [X], [y]

    net = Counting()
    net.initialize(ctx=devices(2))
    with pytest.raises(ValueError, match="zip"):
        evaluate_accuracy_gpus(net, labelled(5), one_shard)


def toy_data(batch_size: int, n: int = 60):
    mx.random.seed(0)
    y = np.arange(n) % 10
    X = np.random.uniform(size=(n, 1, 8, 8)) * 0.2 + y.reshape(n, 1, 1, 1) / 10
    starts = range(0, n, batch_size)
    batches = [(X[i : i + batch_size], y[i : i + batch_size]) for i in starts]
    return batches, batches


def test_one_and_three_contexts_train_alike_and_a_second_training_starts_afresh(capsys):
    train = partial(concise.train, batch_size=58, lr=0.2, num_epochs=3, std=0.3, load_data=toy_data)
    one, three = small_net(), small_net()  # the last batch has two examples
    for a, b in zip(train(one, 1), train(three, 3), strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-4)
        assert a.accuracy == pytest.approx(b.accuracy, abs=0.04)
    cpu = mx.cpu(0)
    assert largest_difference(parameters(one, cpu), parameters(three, cpu)) < 1e-4
    history = train(three, 2)  # the same net once more: nothing carries over
    assert history[-1].loss == pytest.approx(b.loss, rel=1e-4)
    assert evaluate_accuracy_gpus(three, toy_data(11)[1]) == pytest.approx(history[-1].accuracy)
    assert "s an epoch on cpu(0), cpu(1)\n" in capsys.readouterr().out


def test_the_loss_of_an_epoch_is_the_mean_over_examples():
    net = small_net()
    (epoch,) = concise.train(net, 2, 11, lr=0.0, num_epochs=1, std=0.3, load_data=toy_data)
    X, y = (np.concatenate(parts) for parts in zip(*toy_data(11)[0], strict=True))
    assert epoch.loss == pytest.approx(loss(net(X), y).mean().item(), rel=1e-5)


def test_the_clock_is_read_when_all_queued_work_is_done(monkeypatch):
    events = []
    monkeypatch.setattr(concise, "synchronize", lambda: events.append("wait"))
    monkeypatch.setattr(concise.time, "perf_counter", lambda: events.append("clock") or 0.0)
    monkeypatch.setattr(concise, "train_batch", lambda *a: events.append("step") or np.zeros(()))
    concise.train(small_net(), 2, 60, 0.1, num_epochs=1, load_data=toy_data)
    assert events == ["wait", "clock", "step", "wait", "clock"]


@pytest.mark.parametrize("num_gpus", [0, -2, 1.5])
def test_a_wrong_number_of_devices_is_refused_before_anything_is_loaded(num_gpus):
    with pytest.raises(ValueError, match="at least 1"):
        concise.train(small_net(), num_gpus, 8, 0.1, load_data=None)


def test_no_epochs_are_refused():
    with pytest.raises(ValueError, match=r"num_epochs must be an integer .* but it is 0\."):
        concise.train(small_net(), 1, 8, 0.1, num_epochs=0, load_data=toy_data)


@pytest.mark.parametrize("seed", [1.5, "0", -1])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(ValueError, match=f"seed must be an integer of at least 0, .* {seed!r}"):
        concise.train(small_net(), 1, 60, 0.1, seed=seed, load_data=toy_data)


def test_data_that_are_empty_or_end_with_the_first_epoch_are_refused():
    train, batches = partial(concise.train, small_net(), 1, 60, 0.1), toy_data(60)[0]
    for data in (([], batches), (batches, [])):
        with pytest.raises(ValueError, match="The data, a list, holds no batch"):
            train(load_data=lambda n, data=data: data)
    with pytest.raises(ValueError, match=r"test data is a list_iterator.*only once"):
        train(load_data=lambda n: (batches, iter(batches)))


@pytest.mark.parametrize("shape", [(0,), (3, 1)])
def test_labels_that_are_not_one_for_each_example_are_refused(shape):
    net, X, y = small_net(), np.zeros((shape[0], 1, 8, 8)), np.zeros(shape, dtype="int64")
    init_weights(net, devices(2))
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    with pytest.raises(ValueError, match="one label for each example"):
        concise.train_batch(X, y, net, devices(2), trainer)
    with pytest.raises(ValueError, match="one label for each example"):
        evaluate_accuracy_gpus(net, [(X, y)])


def test_deferred_parameters_exist_on_all_contexts_once_data_has_passed_one():
    net = resnet18(10)
    init_weights(net, devices(2))
    with pytest.raises(RuntimeError, match="initialization was deferred"):
        net[-1].weight.data(mx.cpu(0))
    assert net(np.zeros((4, 1, 8, 8))).shape == (4, 10)
    assert_replicas_identical([parameters(net, device) for device in devices(2)])
    with pytest.raises(RuntimeError, match=r"not initialized on context cpu\(2\)"):
        net[-1].weight.data(mx.cpu(2))
    learned = [p for p in net.collect_params().values() if p.grad_req != "null"]
    assert sum(p.data(mx.cpu(0)).size for p in learned) == 11_175_818


def test_another_seed_starts_from_other_weights():
    nets = small_net(), small_net()
    for seed, net in enumerate(nets):
        concise.train(net, 1, 60, 0.0, num_epochs=1, seed=seed, load_data=toy_data)
    assert largest_difference(*(parameters(net, mx.cpu(0)) for net in nets)) > 0.01


def test_every_public_name_is_importable_and_documented():
    for name in d2l_mgpu.gluon.__all__:
        assert getattr(d2l_mgpu.gluon, name).__doc__, name
    assert d2l_mgpu.gluon.__all__ == sorted(
        d2l_mgpu.gluon.__all__, key=lambda n: (n[0].islower(), n)
    )
