"""The checkers of the chapter on processes tell right attempts from typical mistakes."""

import pytest


def sum_of_the_nodes_before(processes, node, local_rank):
    return sum(processes[:node]) + local_rank


def same_everywhere(processes, node, local_rank):
    return node * processes[node] + local_rank


def local_only(processes, node, local_rank):
    return local_rank


def first_node_s(processes, node, local_rank):
    return node * processes[0] + local_rank


def dealt_like_cards(num_examples, rank, world_size):
    return len(range(rank, num_examples, world_size))


def by_division(num_examples, rank, world_size):
    return num_examples // world_size + (rank < num_examples % world_size)


def rounded_up(num_examples, rank, world_size):
    return -(-num_examples // world_size)


def rounded_down(num_examples, rank, world_size):
    return num_examples // world_size


def last_rank_pays(num_examples, rank, world_size):
    whole = -(-num_examples // world_size)
    return max(0, min(whole, num_examples - rank * whole))


def young(save, failure):
    return (2 * save * failure) ** 0.5


def without_the_two(save, failure):
    return (save * failure) ** 0.5


def half_the_failure(save, failure):
    return failure / 2


@pytest.mark.parametrize(
    ("name", "attempt"),
    [
        ("global-rank", sum_of_the_nodes_before),
        ("examples-that-count", dealt_like_cards),
        ("examples-that-count", by_division),
        ("checkpoint-interval", young),
    ],
)
def test_right_attempts_are_right(name, attempt, verdict):
    assert verdict(name, attempt).startswith("Right: ")


@pytest.mark.parametrize(
    ("name", "attempt", "what_went_wrong"),
    [
        ("global-rank", same_everywhere, "[4, 2] processes on the nodes, local rank 0 on node 1"),
        ("global-rank", local_only, "local rank 0 on node 1 is rank 2, but you gave 0"),
        ("global-rank", first_node_s, "[2, 4, 1] processes on the nodes, local rank 0 on node 2"),
        ("examples-that-count", rounded_up, "rank 2 of 4 gets [2, 6, 0], of which 2 count"),
        ("examples-that-count", rounded_down, "rank 0 of 4 gets [0, 4, 8], of which 3 count"),
        ("examples-that-count", last_rank_pays, "rank 2 of 4 gets [2, 6, 0], of which 2 count"),
        ("checkpoint-interval", without_the_two, "of the time is lost; 1.52% can do"),
        ("checkpoint-interval", half_the_failure, "you gave 43200.0: 25.02% of the time is lost"),
        ("checkpoint-interval", lambda save, failure: 0, "a number of seconds above 0"),
    ],
)
def test_other_attempts_are_told_where_they_fail(name, attempt, what_went_wrong, verdict):
    answer = verdict(name, attempt)
    assert answer.startswith("Not yet: ")
    assert what_went_wrong in answer
