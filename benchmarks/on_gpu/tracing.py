"""Which kernels a step spends its time in, as torch.profiler sees it."""

import time
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import profile

from benchmarks.on_gpu.setting import Findings, Setting, fast_step, network
from d2l_mgpu import synchronize

STEPS = 3
TOP = 12


def kernels(s: Setting, profiler: profile) -> list[tuple[float, int, str]]:
    """Seconds, calls and name of each kernel of a GPU, or operator of the CPU; longest first."""
    found: list[tuple[float, int, str]] = []
    wanted = DeviceType.CUDA if s.gpu else DeviceType.CPU
    for event in profiler.key_averages():
        if event.device_type == wanted and not getattr(event, "is_user_annotation", False):
            own = event.self_device_time_total if s.gpu else event.self_cpu_time_total
            found.append((own / 1e6, event.count, event.key))
    return sorted(found, reverse=True)


def find(s: Setting) -> Findings:
    _, step = fast_step(s, network(), 0.01)
    for _ in range(STEPS):  # libraries load and choose their kernels
        step(*s.batch)
    synchronize([s.device])
    with profile() as profiler:
        start = time.perf_counter()
        for _ in range(STEPS):
            step(*s.batch)
        synchronize([s.device])
        seconds = time.perf_counter() - start
    wrong = []
    if s.trace:
        profiler.export_chrome_trace(str(s.trace))
        if not s.trace.exists():  # of which the profiler says nothing
            wrong.append(f"No trace could be written to {s.trace}: is there such a folder?")
    found = kernels(s, profiler)
    busy = sum(own for own, _, _ in found)
    top = [f"{1e3 * own:9.3f} ms {count:6} x {name[:80]}" for own, count, name in found[:TOP]]
    print(f"{STEPS} steps of ResNet-18: {seconds:.4f} s, of which {busy:.4f} s in:", *top, sep="\n")
    facts: dict[str, Any] = {"steps": STEPS, "batch": s.batch_size, "seconds": seconds}
    facts |= {"seconds in kernels": busy, "top": top}
    if not found:
        wrong.append("The profiler saw no kernel.")
    return Findings(facts, wrong=wrong)
