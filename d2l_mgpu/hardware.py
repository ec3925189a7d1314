"""What hardware can do at most, from data sheets: figures for predictions.

Nothing was measured here. FLOP/s, memory and bandwidth are upper bounds that vendors
and standards publish; programs reach a part of them. Bandwidth counts one direction of
one device, which is half of the total that is advertised for NVLink.

Latencies are typical ones. NVLink, PCI Express, InfiniBand and 100 Gbit Ethernet have
those of one step of a ring with which NVIDIA's library NCCL chooses its algorithms
(3.4, 5.7 and 14 microseconds for the protocol *Simple*), see
https://github.com/NVIDIA/nccl/blob/master/src/graph/tuning.cc. 10 Gbit Ethernet has the
20 microseconds that Hurwitz and Feng measured with TCP (Hot Interconnects 11, 2003,
http://www.hoti.org/archive/Hoti11_program/abstracts/24.html).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """What connects a device to its neighbors.

    A message of N bytes takes `latency` + N / `bandwidth` seconds. `latency` is in
    seconds, `bandwidth` in bytes per second, one way; `year` is that of the standard or
    product, `source` says who publishes the bandwidth.
    """

    latency: float
    bandwidth: float
    year: int
    source: str


@dataclass(frozen=True)
class Gpu:
    """One GPU, in its fastest form with NVLink.

    `flops` are dense operations per second of the tensor cores in bfloat16, or in
    float16 on the V100, which has no bfloat16; `float32_flops` those in float32 without
    TF32. `memory` is in bytes, `memory_bandwidth` in bytes per second.
    """

    flops: float
    float32_flops: float
    memory: float
    memory_bandwidth: float
    year: int
    source: str


NVLINK = "NVIDIA NVLink, https://www.nvidia.com/en-us/data-center/nvlink/"
PCI_SIG = "PCI-SIG, https://pcisig.com/specifications"

LINKS: dict[str, Link] = {
    "NVLink 4": Link(3.4e-6, 450e9, 2022, NVLINK),  # 18 links of 25 GB/s
    "NVLink 3": Link(3.4e-6, 300e9, 2020, NVLINK),  # 12 links of 25 GB/s
    "PCIe 5 x16": Link(5.7e-6, 63e9, 2019, PCI_SIG),  # 32 GT/s, 128b/130b
    "PCIe 4 x16": Link(5.7e-6, 31.5e9, 2017, PCI_SIG),  # 16 GT/s, 128b/130b
    "InfiniBand NDR": Link(
        14e-6,
        50e9,  # 400 Gbit/s
        2021,
        "NVIDIA ConnectX-7, "
        "https://docs.nvidia.com/networking/display/ConnectX7VPI/Introduction",
    ),
    "100 Gbit Ethernet": Link(14e-6, 12.5e9, 2010, "IEEE Std 802.3ba-2010"),
    "10 Gbit Ethernet": Link(20e-6, 1.25e9, 2002, "IEEE Std 802.3ae-2002"),
}

GPUS: dict[str, Gpu] = {
    "V100": Gpu(
        125e12,
        15.7e12,
        16e9,
        900e9,
        2017,
        "NVIDIA V100 (SXM2) data sheet, https://images.nvidia.com/content/technologies/"
        "volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf",
    ),
    "A100": Gpu(
        312e12,
        19.5e12,
        80e9,
        2.039e12,
        2020,
        "NVIDIA A100 (SXM, 80 GB) data sheet, https://www.nvidia.com/content/dam/en-zz/"
        "Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf",
    ),
    "H100": Gpu(
        989e12,
        67e12,
        80e9,
        3.35e12,
        2022,
        "NVIDIA H100 (SXM) data sheet, https://resources.nvidia.com/en-us-tensor-core/"
        "nvidia-tensor-core-gpu-datasheet (half of its figure with sparsity)",
    ),
}


def ring_seconds(num_bytes: float, k: int, link: Link) -> float:
    """Seconds that the model gives a ring all-reduce of `num_bytes` over `k` devices.

    Each device sends 2 (k - 1) messages of `num_bytes` / k. One device sends nothing.
    """
    return 2 * (k - 1) * (link.latency + num_bytes / (k * link.bandwidth))
