"""What training leaves behind: one record an epoch."""

from dataclasses import dataclass

from d2l_mgpu.arguments import integer


@dataclass(frozen=True)
class Epoch:
    """One epoch of training.

    `number` counts from 1; `loss` is the mean training loss an example while the
    weights were changing; `accuracy` is the fraction of test examples predicted right
    after the epoch; `seconds` is the time spent on training steps, evaluation not
    included.
    """

    number: int
    loss: float
    accuracy: float
    seconds: float

    def __str__(self) -> str:
        return (
            f"epoch {self.number}: loss {self.loss:.3f}, test accuracy "
            f"{self.accuracy:.3f}, {self.seconds:.1f} s"
        )


def check_epochs(num_epochs: int) -> None:
    """Raise ValueError unless there is at least one epoch to train."""
    integer("num_epochs", num_epochs)


def summary(history: list[Epoch], where: str) -> str:
    """The line that ends a training run: last accuracy, median seconds an epoch, and
    devices."""
    seconds = sorted(epoch.seconds for epoch in history)[len(history) // 2]
    return (
        f"test accuracy {history[-1].accuracy:.3f}, {seconds:.1f} s an epoch on {where}"
    )
