"""How far the CPU runs ahead: it queues work on a GPU, and goes on before that is done.

A clock that is read without waiting shows the time of queueing. Where kernels are short, as those
of LeNet, queueing is what takes the time; where they are long, the CPU is done early and waits.
"""

import time
from collections.abc import Callable
from statistics import median

import torch

from benchmarks.on_gpu.setting import Findings, Setting, fast_step, network
from d2l_mgpu import LeNet, synchronize

STEPS = 4  # about a thousand kernels fit into the queue; when it is full, the CPU waits, too
WARM_UPS = 3
REPEATS = 5
MEGABYTES = 64

Times = dict[str, float]


def times(s: Setting, work: Callable[[], object], count: int) -> Times:
    """Median seconds until `work` is queued `count` times, until it is done, and until it is done
    where the CPU waits after each time."""
    found: dict[str, list[float]] = {"queued": [], "done": [], "done, waiting each time": []}
    for _ in range(WARM_UPS):
        work()
    for _ in range(REPEATS):
        synchronize([s.device])
        start = time.perf_counter()
        for _ in range(count):
            work()
        found["queued"].append(time.perf_counter() - start)
        synchronize([s.device])
        found["done"].append(time.perf_counter() - start)
        start = time.perf_counter()
        for _ in range(count):
            work()
            synchronize([s.device])
        found["done, waiting each time"].append(time.perf_counter() - start)
    return {name: median(seconds) for name, seconds in found.items()}


def copies(s: Setting) -> dict[str, Times]:
    """A copy to the device with non_blocking=True: from pageable memory it waits all the same."""
    source = torch.zeros((1 if s.quick else MEGABYTES) * 2**20, dtype=torch.uint8)
    sources = {"pageable": source} | ({"pinned": source.pin_memory()} if s.gpu else {})
    target = torch.empty_like(source, device=s.device)
    return {
        f"a copy of {source.nbytes >> 20} MB from {name} memory": times(
            s, lambda source=source: target.copy_(source, non_blocking=True), 1
        )
        for name, source in sources.items()
    }


def find(s: Setting) -> Findings:
    facts = {}
    for name, net in {"LeNet": LeNet(), "ResNet-18": network()}.items():
        _, step = fast_step(s, net, 0.01)
        facts[f"{STEPS} steps of {name}"] = times(s, lambda step=step: step(*s.batch), STEPS)
    facts |= copies(s)
    for name, found in facts.items():
        text = ", ".join(f"{1e3 * seconds:.2f} ms {what}" for what, seconds in found.items())
        print(f"{name}: {text}")
    return Findings(facts)
