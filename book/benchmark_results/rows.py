"""What benchmarks/results holds, a row for each goal, and what the page says about a row.

A comparison without a result is a row too, as "not measured".
"""

import hashlib
from pathlib import Path
from typing import Any

from babel.numbers import format_decimal
from sphinx.locale import _

from benchmarks import results
from benchmarks.goals import GOALS
from book.benchmark_results import forest
from book.languages import Language

Row = dict[str, Any]
SIGNS = {"<=": "≤", ">=": "≥"}
NBSP = "\N{NO-BREAK SPACE}"
JOINER = "\N{WORD JOINER}"  # no line ends here


def folder(root: Path) -> Path:
    """Where the results of a book are."""
    return root / "benchmarks" / "results"


def found(root: Path) -> list[Row]:
    """A row for each goal, in the order of the goals."""
    rows = {row["name"]: row for row in results.read(folder(root))}
    missing = {"verdict": "not measured"}
    return [
        rows.get(name, missing) | {"name": name, "row": stated.row}
        for name, stated in GOALS.items()
    ]


def digest(root: Path) -> str:
    """Changes with any result."""
    paths = sorted(folder(root).glob("*.json"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def verdict(name: str) -> str:
    """The word for it in the language of the page."""
    words = {
        "met": _("met"),
        "missed": _("missed"),
        "inconclusive": _("inconclusive"),
        "refused": _("refused"),
        "not measured": _("not measured"),
    }
    return words[name]


def number(value: float, spoken: Language, digits: int = 3) -> str:
    """So many significant digits, with the language's decimal sign."""
    return format_decimal(value, format="@" + "@" * (digits - 1), locale=spoken.code)


def title(row: Row) -> str:
    """What is compared, in the language of the page."""
    english = GOALS[row["name"]].title
    return _(english)


def goal(row: Row, spoken: Language) -> str:
    """Such as "≤ 1.05"."""
    stated = GOALS[row["name"]]
    return f"{SIGNS[stated.sense]}{NBSP}{format_decimal(stated.ratio, locale=spoken.code)}"


def cells(row: Row, spoken: Language) -> list[str]:
    """What the table says about a comparison."""
    start = [str(row["row"]), title(row)]
    if "ratio" not in row:
        return [*start, "–", "–", goal(row, spoken), "–", verdict(row["verdict"])]
    low, high = (number(end, spoken) for end in row["interval"])
    seconds = f"{NBSP}/ ".join(number(value, spoken) for value in row["seconds"])
    return [
        *start,
        seconds,
        f"{number(row['ratio'], spoken, 4)} ({low}{JOINER}–{JOINER}{high})",
        goal(row, spoken),
        number(row["control"], spoken),
        verdict(row["verdict"]),
    ]


def alternative(rows: list[Row], spoken: Language) -> str:
    """What the picture shows, in words."""
    parts = [str(_("Each ratio beside its goal, which is the line at 1."))]
    for row in rows:
        words = {
            "title": title(row),
            "ratio": number(row["ratio"], spoken, 4),
            "goal": goal(row, spoken),
            "verdict": verdict(row["verdict"]),
        }
        parts.append(_("{title}: {ratio}, goal {goal}, {verdict}.").format_map(words))
    return " ".join(parts)


def bar(row: Row, spoken: Language) -> forest.Bar:
    """A comparison in the picture: how far it is from its goal, which is 1; less is better."""
    stated = GOALS[row["name"]]
    ends = [value / stated.ratio for value in (row["ratio"], *row["interval"])]
    if stated.sense == ">=":
        ends = [1 / value for value in ends]
    text = f"{number(row['ratio'], spoken, 4)}  ({goal(row, spoken)})"
    numbered = f"{row['row']}. {title(row)}"
    return forest.Bar(numbered, text, ends[0], min(ends[1:]), max(ends[1:]), row["verdict"])


def measured_on(rows: list[Row], spoken: Language) -> list[str]:
    """A sentence for each machine and day, with the numbers of the rows."""
    where: dict[str, list[Row]] = {}
    for row in rows:
        where.setdefault(str(sorted(row["machine"].items(), key=str)), []).append(row)
    sentences = []
    for same in where.values():
        machine = same[0]["machine"]
        loads = [load[0] for row in same for load in row.get("load", []) if load]
        words = {
            **machine,
            "rows": ", ".join(dict.fromkeys(str(row["row"]) for row in same)),
            "processor": ", ".join(filter(None, (machine["processor"], machine["gpu"]))),
            "load": number(max(loads), spoken, 2) if loads else "–",
        }
        text = _(
            "Rows {rows}: {date}, {processor}, {cores} processor cores, PyTorch {torch}, "
            "Python {python}; highest load {load}."
        )
        sentences.append(text.format_map(words))
    return sentences + [
        speed(row, spoken) for row in rows if "share of peak" in row.get("facts", {})
    ]


def how_to_measure(rows: list[Row]) -> list[str]:
    """A sentence on the rows that wait for a machine with a GPU, if there are any."""
    waiting = [row for row in rows if row["name"].startswith("gpu ") and "machine" not in row]
    if not waiting:
        return []
    text = _(
        "Rows {rows}: not measured yet. Type {command} on a machine with an NVIDIA GPU, "
        "and build the book again."
    )
    numbers = ", ".join(dict.fromkeys(str(row["row"]) for row in waiting))
    return [text.format_map({"rows": numbers, "command": "python -m benchmarks.gpu"})]


def speed(row: Row, spoken: Language) -> str:
    """How much a GPU computed, beside what it can."""
    facts = row["facts"]
    words = {
        "row": row["row"],
        "reached": number(facts["FLOP/s"] / 1e12, spoken),
        "peak": number(facts["peak FLOP/s"] / 1e12, spoken),
        "share": number(100 * facts["share of peak"], spoken, 2),
    }
    text = _(
        "Row {row}: our epoch computed {reached} TFLOP/s, which is {share} % of the {peak} TFLOP/s "
        "that the same GPU reached in a product of large matrices."
    )
    return text.format_map(words)
