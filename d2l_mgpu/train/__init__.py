"""Training on any number of processes and machines: `python -m d2l_mgpu.train`.

`command` reads the `options` and starts a `run`, which takes the steps of its `recipe` with a
`trainer`, writes a `checkpoint` under `checksums`, and says in a `report` what happens.
"""

from d2l_mgpu.train.checkpoint import load_weights
from d2l_mgpu.train.checksums import CheckpointError
from d2l_mgpu.train.command import main
from d2l_mgpu.train.recipe import Recipe
from d2l_mgpu.train.trainer import Trainer

__all__ = ["CheckpointError", "Recipe", "Trainer", "load_weights", "main"]
