"""Checkers of the chapter on devices and data."""

from collections.abc import Callable

from d2l_mgpu.exercises import Wrong, exercise


class PretendDevice:
    """A device with a queue and a clock that moves only during a wait; times in
    seconds."""

    def __init__(self, leftover: float) -> None:
        self.now, self.queued, self.launched = 100.0, leftover, 0

    def launch(self, seconds: float) -> None:
        """Queue work that takes `seconds`; returns at once."""
        self.queued += seconds
        self.launched += 1

    def wait(self) -> None:
        """Let the clock run until the queue is empty."""
        self.now, self.queued = self.now + self.queued, 0.0

    def clock(self) -> float:
        return self.now


@exercise("fair-timer")
def fair_timer(attempt: Callable) -> str:
    """`attempt(work, wait, clock)` returns the seconds that `work()` keeps a device
    busy."""
    for leftover in (0.0, 5.0):
        device = PretendDevice(leftover)
        measured = attempt(lambda: device.launch(2.0), device.wait, device.clock)  # noqa: B023
        where = f"on a device with {leftover:.0f} s of older work in its queue"
        if device.launched != 1:
            raise Wrong(
                f"work() must be called once, but it was called {device.launched} "
                "times."
            )
        if measured == 0:
            raise Wrong(
                f"work that takes 2 s was timed as 0 s {where}: your clock stopped "
                "first."
            )
        if measured != 2.0:
            raise Wrong(f"work that takes 2 s was timed as {measured!r} s {where}.")
    return "2 s of work are timed as 2 s, whether the queue was empty or not."
