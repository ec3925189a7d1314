"""The two chapters on data parallelism in MXNet Gluon: the names and their meaning are PyTorch's.

MXNet was retired in 2023, but it still runs, on Python 3.11 at the latest. Importing this package
switches MXNet to its NumPy interface, `npx.set_np()`, without which arrays of no dimension or of
no elements do not exist and Gluon's blocks return arrays of the older kind.
"""

try:
    from mxnet import npx
except (ImportError, AttributeError) as error:  # AttributeError: a numpy that it is too old for
    raise ImportError(
        "d2l_mgpu.gluon needs MXNet, which was retired in 2023, on Python 3.11: "
        f'pip install "mxnet==1.9.1" "numpy==1.23.5" ({error}).'
    ) from None

npx.set_np()

from d2l_mgpu.gluon import scratch  # noqa: E402
from d2l_mgpu.gluon.data import load_data_fashion_mnist  # noqa: E402
from d2l_mgpu.gluon.devices import describe, get_devices, synchronize  # noqa: E402
from d2l_mgpu.gluon.models import (  # noqa: E402
    LENET_SHAPES,
    Residual,
    lenet,
    lenet_params,
    loss,
    resnet18,
)
from d2l_mgpu.gluon.scratch import (  # noqa: E402
    allreduce,
    evaluate_accuracy,
    get_params,
    scatter,
    sgd,
    split_batch,
    train_batch,
)

__all__ = [
    "LENET_SHAPES",
    "Residual",
    "allreduce",
    "describe",
    "evaluate_accuracy",
    "get_devices",
    "get_params",
    "lenet",
    "lenet_params",
    "load_data_fashion_mnist",
    "loss",
    "resnet18",
    "scatter",
    "scratch",
    "sgd",
    "split_batch",
    "synchronize",
    "train_batch",
]
