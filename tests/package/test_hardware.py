"""Figures of data sheets, in the units that the chapters compute with."""

import pytest

from d2l_mgpu.hardware import GPUS, LINKS, Link, ring_seconds


def test_bandwidths_are_bytes_one_way_and_latencies_seconds():
    assert LINKS["10 Gbit Ethernet"].bandwidth == 10e9 / 8
    assert LINKS["InfiniBand NDR"].bandwidth == 400e9 / 8
    assert LINKS["PCIe 4 x16"].bandwidth == pytest.approx(16 * 16e9 / 8 * 128 / 130, rel=0.01)
    assert LINKS["NVLink 4"].bandwidth == 18 * 25e9
    assert all(1e-7 < link.latency < 1e-4 for link in LINKS.values())


def test_every_figure_has_a_year_and_a_source():
    for figure in [*LINKS.values(), *GPUS.values()]:
        assert 2000 < figure.year < 2030
        assert len(figure.source) > 10


def test_tensor_cores_are_faster_than_float32_on_every_gpu():
    assert all(gpu.flops > 5 * gpu.float32_flops for gpu in GPUS.values())


def test_a_ring_of_two_devices_sends_two_halves():
    link = Link(latency=1.0, bandwidth=10.0, year=2024, source="an example")
    assert ring_seconds(100.0, 2, link) == 2 * (1 + 5)


def test_a_ring_of_one_device_takes_no_time():
    assert all(ring_seconds(1e9, 1, link) == 0 for link in LINKS.values())


def test_a_long_ring_of_large_tensors_takes_twice_the_time_of_sending_them_once():
    link = LINKS["NVLink 4"]
    once = 1e12 / link.bandwidth
    assert ring_seconds(1e12, 1000, link) == pytest.approx(2 * once, rel=0.01)
