"""How many cores a process computes on: one rule for notebooks, ranks and everything
they start."""

import os

import torch


def limit_threads(num_threads: int = 1) -> None:
    """Compute on `num_threads` cores of the CPU, here and in processes that are started
    from here.

    With several processes on one machine, one core each is a good start: otherwise each
    starts a thread for every core, and they wait for each other. It also makes results
    comparable. Threads share a sum among themselves, so with another number of them it
    rounds differently. `torchrun` gives a process one thread where it starts several,
    and all cores where it starts one; it respects what is set here. Devices other than
    the CPU are not concerned.
    """
    torch.set_num_threads(num_threads)
    # what OpenMP in a new process reads
    os.environ["OMP_NUM_THREADS"] = str(num_threads)
