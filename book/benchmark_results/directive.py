"""Sphinx directive `{benchmark-results}`: what benchmarks/results holds, as a table and a picture.

The results are read when the site is built. A comparison without a result is in the table too, as
"not measured".
"""

from pathlib import Path

from babel.numbers import format_decimal
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.locale import _
from sphinx.util.docutils import SphinxDirective

from book.benchmark_results import forest
from book.benchmark_results.rows import (
    Row,
    alternative,
    bar,
    cells,
    digest,
    found,
    how_to_measure,
    measured_on,
    verdict,
)
from book.extensions import PARALLEL_SAFE
from book.files import write_if_changed
from book.languages import Language, language

WIDTHS = (5, 38, 12, 15, 9, 9, 12)  # of the columns


def table_row(texts: list[str]) -> nodes.row:
    """A row of the table; numbers are set to the right."""
    return nodes.row(
        "",
        *(
            nodes.entry(
                "",
                nodes.paragraph("", "", nodes.Text(text)),
                classes=["text-right"] if 2 <= i < len(texts) - 1 else [],
            )
            for i, text in enumerate(texts)
        ),
    )


class BenchmarkResults(SphinxDirective):
    """The table, the picture, and what it was measured on."""

    def run(self) -> list[nodes.Node]:
        root, spoken = Path(self.env.srcdir), language(self.config.language)
        self.env.metadata[self.env.docname]["benchmarks"] = digest(root)
        rows = found(root)
        measured = [row for row in rows if "ratio" in row]
        made: list[nodes.Node] = [self.table(rows, spoken)]
        if measured:
            made.append(self.picture(root, measured, spoken))
        lines = measured_on([row for row in rows if "machine" in row], spoken)
        lines += how_to_measure(rows)
        made += [nodes.paragraph("", "", nodes.Text(line)) for line in lines]
        for node in made:
            node.source = __file__  # no text of the page, which translators would be shown
        return made

    def table(self, rows: list[Row], spoken: Language) -> nodes.table:
        """All comparisons, measured or not."""
        head = [_("Row"), _("First arm / second"), _("Seconds"), _("Ratio (95 % interval)")]
        head += [_("Goal"), _("Control"), _("Verdict")]
        group = nodes.tgroup(cols=len(head))
        group += [nodes.colspec(colwidth=width) for width in WIDTHS]
        body = [table_row(cells(row, spoken)) for row in rows]
        group += [nodes.thead("", table_row(head)), nodes.tbody("", *body)]
        return nodes.table("", group, classes=["colwidths-given"])

    def picture(self, root: Path, rows: list[Row], spoken: Language) -> nodes.image:
        """Drawn into _build, in the language of the page."""
        path = Path("_build", "benchmarks", spoken.folder, "benchmarks.svg")
        legend = {name: verdict(name) for name in forest.MARKS}
        scale = [format_decimal(x, locale=spoken.code) for x in forest.TICKS]
        words = forest.Words(_("better than the goal"), _("worse"), legend, scale)
        write_if_changed(root / path, forest.drawn([bar(r, spoken) for r in rows], words))
        return nodes.image(uri=f"/{path.as_posix()}", alt=alternative(rows, spoken))


def outdated(app: Sphinx, env: BuildEnvironment, *_: set[str]) -> list[str]:
    """The pages that show results other than those there are now."""
    now = digest(Path(app.srcdir))
    return [name for name, data in env.metadata.items() if data.get("benchmarks", now) != now]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("benchmark-results", BenchmarkResults)
    app.connect("env-get-outdated", outdated)
    return PARALLEL_SAFE
