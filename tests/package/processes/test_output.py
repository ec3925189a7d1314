"""What ranks print is shown line by line, with the rank that printed it."""

import io
import subprocess
import sys
from typing import Any

import pytest

from d2l_mgpu import launch
from d2l_mgpu.processes.output import Output

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("each_start")]


def print_in_many_ways() -> None:
    print("two\n\nlines")
    for state in ("10%", "50%", "90%"):
        print(f"\r{state}", end="")
    print()
    print("\r99%\r   ", end="\n")  # a bar that wipes itself off
    print("of a Windows program", end="\r\n")
    subprocess.run(["echo", "of a program that it starts"], check=True)
    print("no newline at the end: \u00e7", end="")


def print_10_megabytes() -> None:
    for _ in range(1000):
        sys.stdout.write("x" * 10_000)


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_of_what_the_ranks_print_each_line_says_whose_it_is(
    capfd: pytest.CaptureFixture[str],
) -> None:
    launch(print_in_many_ways, num_devices=2)
    lines = ["two", "", "lines", "90%", "of a Windows program", "of a program that it starts"]
    lines.append("no newline at the end: \u00e7")
    assert capfd.readouterr().out == "".join(f"[rank {r}] {x}\n" for r in (0, 1) for x in lines)


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_what_a_single_rank_prints_appears_unchanged(capfdbinary: Any) -> None:
    launch(print_in_many_ways, num_devices=1)
    assert capfdbinary.readouterr().out.decode() == (
        "two\n\nlines\n\r10%\r50%\r90%\n\r99%\r   \nof a Windows program\r\n"
        "of a program that it starts\nno newline at the end: \u00e7"
    )


@pytest.mark.usefixtures("leaves_nothing_behind")
def test_ranks_may_print_much(capfd: pytest.CaptureFixture[str]) -> None:
    launch(print_10_megabytes, num_devices=2)
    text = "x" * 10_000_000
    assert capfd.readouterr().out == f"[rank 0] {text}\n[rank 1] {text}\n"


def test_letters_that_the_terminal_lacks_do_not_cost_the_results(tmp_path, monkeypatch):
    file, terminal = tmp_path / "0.out", io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    file.write_text("độ chính xác 0.9\n", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", terminal)
    Output(file, "[rank 0] ").show(ended=True)
    assert terminal.buffer.getvalue() == b"[rank 0] ?? ch?nh x?c 0.9\n"


def test_a_standard_output_that_is_closed_does_not_cost_the_results(tmp_path, monkeypatch):
    file, closed = tmp_path / "0.out", io.StringIO()
    file.write_text("said\n")
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    Output(file, "").show(ended=True)
