"""Any number of ranks sees the same batches, each example once an epoch, from any place on."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2l_mgpu.sampling import ShardSampler


def samplers(n: int, batch_size: int, world_size: int, seed: int = 0) -> list[ShardSampler]:
    return [
        ShardSampler(n, batch_size, seed=seed, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]


def batches(shards_of_ranks: list[ShardSampler]) -> list[list[int]]:
    """One epoch of all ranks: the batches put together again."""
    return [list(itertools.chain(*shards)) for shards in zip(*shards_of_ranks, strict=True)]


@given(n=st.integers(1, 60), batch_size=st.integers(1, 70), world_size=st.integers(1, 5))
def test_shards_of_any_number_of_ranks_make_the_batches_of_one_device(
    n: int, batch_size: int, world_size: int
) -> None:
    [one] = samplers(n, batch_size, 1)
    whole = list(one)
    assert batches(samplers(n, batch_size, world_size)) == whole
    assert sorted(itertools.chain(*whole)) == list(range(n))
    assert [len(batch) for batch in whole] == [one.size(i) for i in range(len(one))]


@given(
    stop=st.integers(0, 10),
    before=st.integers(1, 4),
    after=st.integers(1, 4),
    epoch=st.integers(0, 3),
)
def test_a_sampler_goes_on_where_another_stopped(
    stop: int, before: int, after: int, epoch: int
) -> None:
    def at(epoch: int, world_size: int) -> list[ShardSampler]:
        found = samplers(21, 2, world_size, seed=7)
        for sampler in found:
            sampler.load_state_dict(sampler.state_dict() | {"epoch": epoch})
        return found

    first, second = at(epoch, before), at(0, after)
    begun = [list(itertools.islice(sampler, stop)) for sampler in first]
    for sampler in second:
        sampler.load_state_dict(first[0].state_dict())
    seen = [list(itertools.chain(*shards)) for shards in zip(*begun, strict=True)]
    assert seen + batches(second) == batches(at(epoch, 1))
    assert {sampler.epoch for sampler in second} == {epoch + 1}


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        ("num_examples", ShardSampler(22, 2, seed=7)),
        ("batch_size", ShardSampler(21, 3, seed=7)),
        ("seed", ShardSampler(21, 2)),
    ],
)
def test_a_place_in_another_order_is_refused(name: str, sampler: ShardSampler) -> None:
    saved = ShardSampler(21, 2, seed=7, rank=1, world_size=2).state_dict() | {"position": 3}
    with pytest.raises(ValueError, match=rf"has {name} \d+, the saved one {saved[name]}\."):
        sampler.load_state_dict(saved)
    for place in ({"position": -5}, {"position": 12}, {"epoch": -3}, {"epoch": 1.5}):
        with pytest.raises(ValueError, match=f"{next(iter(place))} "):
            ShardSampler(21, 2, seed=7).load_state_dict(saved | place)
    with pytest.raises(ValueError, match="the saved one None"):
        sampler.load_state_dict({"epoch": 0, "position": 3})
    assert sampler.position == 0


def test_two_loops_at_once_are_refused() -> None:
    sampler = ShardSampler(6, 2)
    first, second = iter(sampler), iter(sampler)
    next(first), next(second)
    with pytest.raises(RuntimeError, match="Two loops over one ShardSampler"):
        next(first)


def test_every_epoch_and_every_seed_has_an_order_of_its_own() -> None:
    orders = []
    for seed in range(3):
        [sampler] = samplers(50, 50, 1, seed)
        orders += [tuple(batch) for _ in range(3) for batch in sampler]
    assert len(set(orders)) == 9


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 1), {}, "num_examples must be an integer of at least 1, but it is 0"),
        ((10, 0), {}, "batch_size must be an integer of at least 1, but it is 0"),
        ((10, 2.5), {}, "batch_size must be an integer of at least 1, but it is 2.5"),
        ((10, 2), {"rank": 2, "world_size": 2}, r"rank must be in 0\.\.1, not 2"),
        ((10, 2), {"rank": -1}, "rank must be an integer of at least 0, but it is -1"),
    ],
)
def test_bad_input_is_refused(arguments: tuple, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShardSampler(*arguments, **options)
