"""Training on any number of processes and machines: `python -m d2l_mgpu.train`.

`command` reads the `options` and starts a `run`, which takes the steps of its `recipe`
with a `trainer` and says in a `report` what happens. It is the only one that writes to
its `folder`, all ranks `together`: a `checkpoint` of `tensors` under `checksums`.
"""

from d2l_mgpu.train.checkpoint import load_weights
from d2l_mgpu.train.checksums import CheckpointError
from d2l_mgpu.train.command import main
from d2l_mgpu.train.recipe import Recipe
from d2l_mgpu.train.trainer import Trainer

__all__ = ["CheckpointError", "Recipe", "Trainer", "load_weights", "main"]
