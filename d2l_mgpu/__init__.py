"""Multi-GPU training that equals one device, on whatever devices there are.

What a chapter shows stands in a module here; what it uses without showing has a folder.
A name in the last column stands for a file `test_<name>.py` below `tests/package/`.
What checks a chapter's exercises has the chapter's name: a module of `exercises`, and
`test_exercises_<chapter>.py`.

====================== ============================= ===================================
chapter                modules                       tests
====================== ============================= ===================================
devices-and-data       devices, pretended, data,     devices, pretended, images,
                       hardware                      fashion_mnist, real_images,
                                                     garments, hardware
multiple-gpus          models, scratch, proofs       models, scratch, proofs
multiple-gpus-concise  concise, collectives,         concise, collectives, batch_norm,
                       batch_norm                    real_input, examples
processes              sampling, accumulation,       sampling, accumulation, launcher,
                       processes, train              launch_from, launch_ends, output,
                                                     fork_server, threads, nodes, slurm,
                                                     heartbeat, group, command, options,
                                                     run, report, trainer, checkpoint,
                                                     checksums, folder, faults
allreduce              all_reduces, shared_memory    all_reduces, shared_memory
overlap                buckets                       buckets
splitting              splitting, traffic            splitting, traffic
fast                   fast, cuda_graphs             fast, cuda_graphs
all of them            arguments, exactness,         arguments, exactness, history,
                       history, plotting, progress,  plotting, progress, errata,
                       exercises                     package, cuda_only
gluon/                 gluon                         gluon
====================== ============================= ===================================

Importing this needs torch and numpy only; what else a function needs it imports when
called.
"""

from d2l_mgpu import concise, scratch
from d2l_mgpu.accumulation import backward_in_parts
from d2l_mgpu.all_reduces import (
    ALL_REDUCES,
    Sent,
    all_reduce_at_root,
    all_reduce_ring,
    all_reduce_sharded,
    all_reduce_tree,
)
from d2l_mgpu.batch_norm import SyncBatchNorm, sync_batch_norm
from d2l_mgpu.buckets import Bucket, Bucketed, fill_buckets
from d2l_mgpu.collectives import all_reduce
from d2l_mgpu.concise import (
    evaluate_accuracy_gpus,
    init_weights,
    shard_loss,
    train_replica,
)
from d2l_mgpu.data import (
    FASHION_MNIST_LABELS,
    DeviceBatches,
    DownloadError,
    load_data_fashion_mnist,
    on_device,
)

# by this name the origin of images is printed
from d2l_mgpu.data import garments as garments
from d2l_mgpu.devices import describe, get_devices, synchronize
from d2l_mgpu.exactness import deterministic, without_tf32
from d2l_mgpu.exercises import check
from d2l_mgpu.fast import FastNet, FastStep, computes_bf16
from d2l_mgpu.history import Epoch
from d2l_mgpu.models import LeNet, Residual, lenet, lenet_params, loss, resnet18
from d2l_mgpu.plotting import plot, use_svg_display
from d2l_mgpu.pretended import PretendedDevices, pretended_devices
from d2l_mgpu.processes.group import Group, process_group
from d2l_mgpu.processes.joining import rank_device, this_rank
from d2l_mgpu.processes.launcher import RankError, launch
from d2l_mgpu.processes.threads import limit_threads
from d2l_mgpu.proofs import (
    assert_equals_one_device,
    assert_replicas_identical,
    exact_dtype,
    largest_difference,
    prove_equals_one_device,
)
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
from d2l_mgpu.traffic import Exchange, Traffic

__all__ = [
    "ALL_REDUCES",
    "FASHION_MNIST_LABELS",
    "SPLITS",
    "Bucket",
    "Bucketed",
    "DeviceBatches",
    "DownloadError",
    "Epoch",
    "Exchange",
    "FastNet",
    "FastStep",
    "Group",
    "LeNet",
    "PretendedDevices",
    "RankError",
    "Residual",
    "Sent",
    "ShardSampler",
    "Split",
    "SyncBatchNorm",
    "Traffic",
    "all_reduce",
    "all_reduce_at_root",
    "all_reduce_ring",
    "all_reduce_sharded",
    "all_reduce_shared",
    "all_reduce_tree",
    "allreduce",
    "assert_equals_one_device",
    "assert_replicas_identical",
    "backward_in_parts",
    "check",
    "computes_bf16",
    "concise",
    "data_split",
    "describe",
    "deterministic",
    "evaluate_accuracy",
    "evaluate_accuracy_gpus",
    "exact_dtype",
    "fill_buckets",
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
    "on_device",
    "plot",
    "pretended_devices",
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
    "sync_batch_norm",
    "synchronize",
    "this_rank",
    "train_batch",
    "train_replica",
    "use_svg_display",
    "without_tf32",
]
