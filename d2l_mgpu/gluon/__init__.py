"""The two chapters on data parallelism in MXNet Gluon: the names and their meaning are
PyTorch's.

MXNet was retired in 2023, but it still runs, on Python 3.11. Importing this package
switches MXNet to its NumPy interface, `npx.set_np()`, without which there are neither
scalars nor empty arrays, and Gluon's blocks return arrays of an older kind. MXNet keeps
this switch for each thread: a thread that you start has to call `npx.set_np()` itself.
"""

try:
    from mxnet import npx
# too new a numpy, a missing library
except (ImportError, AttributeError, OSError) as error:
    raise ImportError(
        "d2l_mgpu.gluon needs MXNet, which was retired in 2023, on Python 3.11: "
        f'pip install "mxnet==1.9.1" "numpy==1.23.5" ({error}).'
    ) from None

npx.set_np()

from d2l_mgpu.gluon import concise, scratch  # noqa: E402
from d2l_mgpu.gluon.concise import evaluate_accuracy_gpus, init_weights  # noqa: E402
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
from d2l_mgpu.gluon.proofs import (  # noqa: E402
    assert_equals_one_device,
    assert_replicas_identical,
    copy_weights,
    largest_difference,
    prove_equals_one_device,
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
    "assert_equals_one_device",
    "assert_replicas_identical",
    "concise",
    "copy_weights",
    "describe",
    "evaluate_accuracy",
    "evaluate_accuracy_gpus",
    "get_devices",
    "get_params",
    "init_weights",
    "largest_difference",
    "lenet",
    "lenet_params",
    "load_data_fashion_mnist",
    "loss",
    "prove_equals_one_device",
    "resnet18",
    "scatter",
    "scratch",
    "sgd",
    "split_batch",
    "synchronize",
    "train_batch",
]
