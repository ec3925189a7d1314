"""The collectives between processes are right for tensors of any strides."""

import torch
import torch.distributed as dist

from d2l_mgpu import collectives, launch


def sum_of_columns() -> torch.Tensor:
    """Run by each rank: sum every other column of a matrix that differs from rank to rank."""
    columns = (torch.arange(12.0) * (dist.get_rank() + 1)).reshape(3, 4)[:, ::2]
    collectives.all_reduce(columns)
    return columns


def test_all_reduce_is_right_for_a_view_that_is_not_contiguous_where_gloo_alone_is_not():
    def unguarded():  # pitfall 7, planted in the package
        collectives.all_reduce = dist.all_reduce
        try:
            return sum_of_columns()
        except (RuntimeError, ValueError):
            return torch.empty(0)  # a torch that refuses such a view is safe as well

    expected = (torch.arange(12.0) * 3).reshape(3, 4)[:, ::2]
    assert all(torch.equal(x, expected) for x in launch(sum_of_columns, num_devices=2))
    assert not any(torch.equal(x, expected) for x in launch(unguarded, num_devices=2))
