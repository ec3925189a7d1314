"""Checkers of the chapter on where an epoch's time goes."""

import math
from collections.abc import Callable

import torch

from d2l_mgpu.exercises import Wrong, exercise

PARTS = [
    (0.5, 2.0),
    (0.05, math.inf),
    (0.9, 10.0),
    (1.0, 3.0),
    (0.25, 0.5),
    (0.8, math.inf),
]
WEIGHTS = [1.0, 1.5, 0.75, 3.0, 0.01, 96.0, 1.9921875]  # rounded to bfloat16 below
# images, side, epochs
JOBS = [(60_000, 28, 10), (60_000, 28, 1), (1_000, 96, 3), (1, 1, 1)]


@exercise("amdahl")
def amdahl(attempt: Callable[[float, float], float]) -> str:
    """`attempt(share, factor)` returns how many times as fast the whole becomes."""
    for share, factor in PARTS:
        expected = 1 / (1 - share + share / factor)
        found = attempt(share, factor)
        if not math.isclose(found, expected, rel_tol=1e-6):
            raise Wrong(
                f"if {share:.0%} of the time becomes {factor:g} times as fast, the "
                f"whole becomes {expected:.3f} times as fast, but you gave {found!r}."
            )
    return "what stays as it was decides how much the rest can bring."


@exercise("bf16-gap")
def bf16_gap(attempt: Callable[[float], float]) -> str:
    """`attempt(weight)` returns the distance from a bfloat16 number to the next larger
    one."""
    for number in WEIGHTS:
        weight = torch.tensor(number).bfloat16()
        # its bits, counted up
        following = (weight.view(torch.int16) + 1).view(torch.bfloat16)
        expected = following.item() - weight.item()
        found = attempt(weight.item())
        if found != expected:
            raise Wrong(
                f"after {weight.item():g} the next number is {following.item():g}, "
                f"which is {expected:g} larger, but you gave {found!r}."
            )
    return "128 numbers from one power of two to the next, and nothing in between."


@exercise("bytes-to-device")
def bytes_to_device(attempt: Callable[[int, int, int], tuple[int, int]]) -> str:
    """`attempt(num_images, side, num_epochs)` returns the bytes sent as floats, and as
    bytes."""
    for n, side, epochs in JOBS:
        expected = (epochs * n * (4 * side**2 + 8), n * (side**2 + 8) + epochs * n * 8)
        found = attempt(n, side, epochs)
        for how, ours, right in zip(
            ("as floats", "as bytes"), found, expected, strict=True
        ):
            if ours != right:
                raise Wrong(
                    f"{epochs} epochs of {n} images of {side} x {side} pixels, sent "
                    f"{how}, are {right} bytes, but you gave {ours!r}."
                )
    return "one is paid in every epoch, the other once."
