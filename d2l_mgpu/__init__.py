"""Multi-GPU training that equals one device, on whatever devices there are.

Importing this needs torch and numpy only; what else a function needs it imports when called.
"""

from d2l_mgpu import concise, scratch
from d2l_mgpu.accumulation import backward_in_parts
from d2l_mgpu.all_reduces import ALL_REDUCES, Sent
from d2l_mgpu.buckets import Bucketed
from d2l_mgpu.collectives import all_reduce
from d2l_mgpu.concise import evaluate_accuracy_gpus, init_weights, shard_loss, train_replica
from d2l_mgpu.data import FASHION_MNIST_LABELS, load_data_fashion_mnist
from d2l_mgpu.devices import describe, get_devices, synchronize
from d2l_mgpu.exercises import check
from d2l_mgpu.fast import DeviceBatches, FastNet, FastStep
from d2l_mgpu.history import Epoch
from d2l_mgpu.launch import RankError, launch, rank_device
from d2l_mgpu.models import LeNet, Residual, lenet, lenet_params, loss, resnet18
from d2l_mgpu.plotting import plot, use_svg_display
from d2l_mgpu.processes import Group, process_group
from d2l_mgpu.proofs import (
    assert_equals_one_device,
    assert_replicas_identical,
    exact_dtype,
    largest_difference,
    prove_equals_one_device,
)
from d2l_mgpu.real_images import DownloadError
from d2l_mgpu.sampling import ShardSampler
from d2l_mgpu.scratch import (
    allreduce,
    evaluate_accuracy,
    get_params,
    scatter,
    sgd,
    split_batch,
    train_batch,
)
from d2l_mgpu.shared_memory import all_reduce_shared, shared_tensors
from d2l_mgpu.splitting import (
    SPLITS,
    Split,
    data_split,
    layer_split,
    network_split,
    prove_split_equals_one_device,
    split_step,
)
from d2l_mgpu.threads import limit_threads
from d2l_mgpu.traffic import Exchange, Traffic

__all__ = [
    "ALL_REDUCES",
    "FASHION_MNIST_LABELS",
    "SPLITS",
    "Bucketed",
    "DeviceBatches",
    "DownloadError",
    "Epoch",
    "Exchange",
    "FastNet",
    "FastStep",
    "Group",
    "LeNet",
    "RankError",
    "Residual",
    "Sent",
    "ShardSampler",
    "Split",
    "Traffic",
    "all_reduce",
    "all_reduce_shared",
    "allreduce",
    "assert_equals_one_device",
    "assert_replicas_identical",
    "backward_in_parts",
    "check",
    "concise",
    "data_split",
    "describe",
    "evaluate_accuracy",
    "evaluate_accuracy_gpus",
    "exact_dtype",
    "get_devices",
    "get_params",
    "init_weights",
    "largest_difference",
    "launch",
    "layer_split",
    "lenet",
    "lenet_params",
    "limit_threads",
    "load_data_fashion_mnist",
    "loss",
    "network_split",
    "plot",
    "process_group",
    "prove_equals_one_device",
    "prove_split_equals_one_device",
    "rank_device",
    "resnet18",
    "scatter",
    "scratch",
    "sgd",
    "shard_loss",
    "shared_tensors",
    "split_batch",
    "split_step",
    "synchronize",
    "train_batch",
    "train_replica",
    "use_svg_display",
]
