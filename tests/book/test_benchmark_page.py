"""What the site shows of the benchmarks: every goal, in the language's numbers, measured or not."""

from datetime import date
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from benchmarks import results
from benchmarks.goals import GOALS
from benchmarks.pairs import judged, refused
from book.benchmark_results import directive, forest
from book.benchmark_results import rows as page
from book.languages import ENGLISH, TRANSLATIONS

PT = TRANSLATIONS[0]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A book with results of three comparisons; nothing was measured of the others."""
    folder = tmp_path / "benchmarks" / "results"
    folder.mkdir(parents=True)
    rows = [judged("scratch, k=2", [(1.25, 1.0, 1.0)] * 30) | {"load": [[1.5, 1, 1], [2.5, 1, 1]]}]
    results.write("scratch", rows, folder)
    results.write("epoch", [judged("epoch", [(2.0, 1.0, 1.0)] * 15)], folder)
    results.write("buckets", [refused("buckets", "different")], folder)
    return tmp_path


def by_name(root: Path) -> dict[str, dict]:
    return {row["name"]: row for row in page.found(root)}


def test_every_goal_has_its_row_and_says_what_came_of_it(root: Path) -> None:
    rows = by_name(root)
    assert list(rows) == list(GOALS)
    last = {name: page.cells(row, ENGLISH)[-1] for name, row in rows.items()}
    verdicts = {"scratch, k=2": "missed", "epoch": "met", "buckets": "refused"}
    assert last == dict.fromkeys(GOALS, "not measured") | verdicts
    assert {len(page.cells(row, ENGLISH)) for row in rows.values()} == {len(directive.WIDTHS)}


def test_numbers_are_written_as_the_language_writes_them(root: Path) -> None:
    row = by_name(root)["scratch, k=2"]
    assert page.cells(row, ENGLISH)[3:5] == ["1.250 (1.25\u2060–\u20601.25)", "≤\xa01.05"]
    assert page.cells(row, PT)[3:5] == ["1,250 (1,25\u2060–\u20601,25)", "≤\xa01,05"]
    assert "1,25" in page.alternative([row], PT) and "1.25" not in page.alternative([row], PT)


def test_the_page_names_the_machine_once_and_how_busy_it_was(root: Path) -> None:
    rows = [row for row in page.found(root) if "machine" in row]
    (sentence,) = page.measured_on(rows, ENGLISH)
    assert sentence.startswith("Rows 1, 3, 6: 20") and "highest load 2.5" in sentence
    rows[0]["machine"] = rows[0]["machine"] | {"gpu": "a GPU"}
    assert "a GPU" in "".join(page.measured_on(rows, ENGLISH))
    assert len(page.measured_on(rows, ENGLISH)) == 2


def test_the_page_says_how_to_measure_what_waits_for_a_gpu(root: Path) -> None:
    (sentence,) = page.how_to_measure(page.found(root))
    assert "7, 8: not measured yet" in sentence and "python -m benchmarks.gpu" in sentence
    row = judged("gpu graph", [(6.0, 1.0, 1.0)] * 15)
    results.add("gpu", "graph", {"rows": [row]}, page.folder(root))
    (sentence,) = page.how_to_measure(page.found(root))
    assert "7: not measured yet" in sentence and "8" not in sentence
    results.add("gpu", "epoch", {"rows": [refused("gpu epoch", "why")]}, page.folder(root))
    assert page.how_to_measure(page.found(root)) == []


def test_the_page_says_how_much_of_a_gpu_was_used() -> None:
    facts = {"FLOP/s": 205e12, "peak FLOP/s": 683.3e12, "share of peak": 0.3}
    text = page.speed({"row": 7, "facts": facts}, PT)
    assert "205 TFLOP/s" in text and "30 %" in text and "683 TFLOP/s" in text


def test_left_of_the_goal_is_better_whichever_way_the_ratio_goes(root: Path) -> None:
    bars = {name: page.bar(row, ENGLISH) for name, row in by_name(root).items() if "ratio" in row}
    assert bars["scratch, k=2"].value > 1 > bars["epoch"].value
    row = judged("epoch", [(2 + i / 10, 1.0, 1.0) for i in range(15)])
    bar = page.bar(row, ENGLISH)
    assert bar.low < bar.value < bar.high


def test_the_picture_is_sound_and_shows_each_verdict_in_its_shape() -> None:
    bars = [forest.Bar("a < b, 共$x$", "1", 1, 1e-9, 1000, verdict) for verdict in forest.MARKS]
    words = forest.Words("better", "worse", dict.fromkeys(forest.MARKS, ""), ["1"] * 4)
    picture = forest.drawn(bars, words)
    assert forest.drawn(bars, words) == picture and str(date.today().year) not in picture
    drawing = ElementTree.fromstring(picture)
    assert [text.text for text in drawing.iter(f"{SVG}text")].count("a < b, 共$x$") == len(bars)
    assert len({shape for shape, _ in forest.MARKS.values()}) == len(bars)
    axes = forest.figure(bars, words).axes[0]
    drawn = [line for line in axes.lines if len(line.get_xdata())]
    shapes = [line.get_marker() for line in drawn if line.get_linestyle() == "None"]
    assert shapes == [shape for shape, _ in forest.MARKS.values()]
    ranges = [tuple(line.get_xdata()) for line in drawn if line.get_linestyle() == "-"]
    assert ranges == [forest.ENDS] * len(bars)  # within the picture, at its ends


def test_a_page_is_built_again_when_results_change(root: Path) -> None:
    shown = {"chapters/benchmarks": {"benchmarks": page.digest(root)}, "chapters/index": {}}
    app, env = SimpleNamespace(srcdir=root), SimpleNamespace(metadata=shown)
    assert directive.outdated(app, env) == []
    results.write("epoch", [refused("epoch", "why")], page.folder(root))
    assert directive.outdated(app, env) == ["chapters/benchmarks"]


def test_a_book_without_results_shows_the_goals(tmp_path: Path) -> None:
    rows = page.found(tmp_path)
    assert {row["verdict"] for row in rows} == {"not measured"} and len(rows) == len(GOALS)
