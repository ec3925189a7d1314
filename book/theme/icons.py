"""Sphinx extension: the icons that pages show, drawn here, in place of Font Awesome.

Each is a drawing of strokes in a box of 24 by 24. The style uses it as a mask, so that it has the
color and the size of the text, under the class names and in the places that the theme uses.
"""

from pathlib import Path

from sphinx.application import Sphinx

from book.extensions import PARALLEL_SAFE

CIRCLE = "M12 3a9 9 0 1 0 0 18a9 9 0 1 0 0-18z"
LENS = "M10.5 4a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13zM15.5 15.5L21 21"
ICONS = {
    "angle-left": "M15 5l-7 7l7 7",
    "angle-right": "M9 5l7 7l-7 7",
    "arrow-up": "M12 20V5M5.5 11.5L12 5l6.5 6.5",
    "bars": "M4 6h16M4 12h16M4 18h16",
    "bell": "M6 16v-5a6 6 0 0 1 12 0v5l2 2H4zM10 21h4",
    "chevron-down": "M5 8l7 7l7-7",
    "circle-exclamation": CIRCLE + "M12 7v6M12 17v.01",
    "circle-half-stroke": CIRCLE + "M12 3v18M13.5 4v16M15 4v16M16.5 5v14M18 6.5v11M19.5 8v8",
    "circle-info": CIRCLE + "M12 11v6M12 7v.01",
    "circle-xmark": CIRCLE + "M9 9l6 6M15 9l-6 6",
    "compress": "M9 4v5H4M20 9h-5V4M15 20v-5h5M4 15h5v5",
    "download": "M12 4v11M7 10.5l5 5l5-5M4 20h16",
    "expand": "M4 9V4h5M15 4h5v5M20 15v5h-5M9 20H4v-5",
    "file-pdf": "M6 3h8.5L19 7.5V21H6zM14 3v5h5M9.5 13h6M9.5 17h6",
    "flask": "M9 3h6M10 3v6L4.5 18.5A1.7 1.7 0 0 0 6 21h12a1.7 1.7 0 0 0 1.5-2.5L14 9V3M7.5 15h9",
    "github": "M7 3a2.5 2.5 0 1 0 0 5a2.5 2.5 0 1 0 0-5zM7 16a2.5 2.5 0 1 0 0 5a2.5 2.5 0 1 0 0-5z"
    "M17 6a2.5 2.5 0 1 0 0 5a2.5 2.5 0 1 0 0-5zM7 8v8M17 11c0 4-9 1.5-10 5",
    "laptop": "M5 5h14v10.5H5zM3 19.5h18",
    "lightbulb": "M9 18v-2.5a7 7 0 1 1 6 0V18zM10 21.5h4",
    "list": "M9 6h11M9 12h11M9 18h11M4 6h.5M4 12h.5M4 18h.5",
    "magnifying-glass": LENS,
    "magnifying-glass-minus": LENS + "M8 10.5h5",
    "moon": "M20 14.5A8.5 8.5 0 1 1 9.5 4a7 7 0 0 0 10.5 10.5z",
    "pencil": "M4 20l1-4.5L16.5 4l3.5 3.5L8.5 19zM14 6.5l3.5 3.5",
    "rocket": "M12 2.5c4 2.5 5 7.5 4 13H8c-1-5.5 0-10.5 4-13zM8 11l-3.5 4v4L8 15.5"
    "M16 11l3.5 4v4L16 15.5M12 9v.01M12 18.5v3",
    "share": "M14 5l6 6l-6 6M20 11h-8c-5 0-8 3-8 8",
    "square-up-right": "M14 4h6v6M20 4l-9 9M18 14v6H4V6h6",
    "sun": "M12 8a4 4 0 1 0 0 8a4 4 0 1 0 0-8zM12 3v1M12 20v1M3 12h1M20 12h1M5.6 5.6l.7.7"
    "M17.7 17.7l.7.7M5.6 18.4l.7-.7M17.7 6.3l.7-.7",
    "triangle-exclamation": "M12 4L21 20H3zM12 10v4.5M12 17v.01",
    "xmark": "M5 5l14 14M19 5L5 19",
}
ALIASES = {"pencil": ["pencil-alt", "pen"], "square-up-right": ["external-link-alt"]}

CLASSES = ".fas, .far, .fab, .fa-solid, .fa-regular, .fa-brands"
ADMONITIONS = {
    "": "bell",
    ".note": "circle-info",
    ".attention": "circle-exclamation",
    ".important": "circle-exclamation",
    ".caution": "triangle-exclamation",
    ".warning": "triangle-exclamation",
    ".danger": "triangle-exclamation",
    ".error": "circle-xmark",
    ".hint": "lightbulb",
    ".tip": "lightbulb",
    ".seealso": "share",
    ".admonition-todo": "pencil",
}
# Where the theme's style itself writes characters of the icon font.
GENERATED = {
    **{f"div.admonition{kind} > .admonition-title::after": i for kind, i in ADMONITIONS.items()},
    "div#searchbox p.highlight-link a::before": "magnifying-glass-minus",
    "nav.bd-links li > a.reference.external::after": "square-up-right",
    ".bd-sidebar-secondary.hide:not(:hover) .onthispage::after": "chevron-down",
    "span.versionmodified::before": "circle-exclamation",
    "a.reference.download::before": "download",
}
STYLE = """/* Written by book/theme/icons.py. */
:is({classes}), {generated} {{
  content: ""; display: inline-block; flex: none; width: 1em; height: 1em; vertical-align: -0.125em;
  background: currentColor; mask: var(--icon) center / contain no-repeat;
  print-color-adjust: exact;
}}
:is(.bd-header-article, .bd-search) :is({classes}) {{ font-size: 1.25rem; }}
.bd-header-article .btn :is({classes}) {{ vertical-align: middle; }}
div.admonition > .admonition-title::after {{ inset-block: 0; margin-block: auto; }}
@media (forced-colors: active) {{
  :is({classes}), {generated} {{ forced-color-adjust: none; background: CanvasText; }}
}}
"""


def address(path: str) -> str:
    """A drawing as the address that a style can hold."""
    return (
        "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='1.5 1.5 21 21' "
        "fill='none' stroke='black' stroke-width='2.25' stroke-linecap='round' "
        f"stroke-linejoin='round'%3E%3Cpath d='{path}'/%3E%3C/svg%3E"
    )


def style() -> str:
    """The style sheet."""
    rules = [STYLE.format(classes=CLASSES, generated=", ".join(GENERATED))]
    for name, path in ICONS.items():
        places = [f".fa-{each}" for each in (name, *ALIASES.get(name, ()))]
        places += [place for place, icon in GENERATED.items() if icon == name]
        rules.append(f'{", ".join(places)} {{ --icon: url("{address(path)}"); }}\n')
    return "".join(rules)


def write(app: Sphinx) -> None:
    """Write the style sheet where Sphinx puts the others."""
    if app.builder.format == "html":
        target = Path(app.outdir, "_static", "icons.css")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(style(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the handler; 600 is after the theme's style."""
    app.connect("builder-inited", write)
    app.add_css_file("icons.css", priority=600)
    return PARALLEL_SAFE
