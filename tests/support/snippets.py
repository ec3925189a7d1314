"""What somebody might write into a translation to run code: in browsers, or during the build."""

IMAGE = "<img src=x onerror=planted()>"
SNIPPETS = {
    "an image with a handler": IMAGE,
    "a drawing with a handler": '<svg onload="planted()"></svg>',
    "a frame": '<iframe src="https://example.org"></iframe>',
    "a script": "<script>planted()</script>",
    "a script of another site": '<script src="https://example.org/x.js"></script>',
    "a link in HTML": '<a href="javascript:planted()">x</a>',
    "a handler of the mouse": '<b onmouseover="planted()">x</b>',
    "an element that is not closed": '<b onclick="planted()"',
    "a style": "<style>body { display: none }</style>",
    "another page": '<meta http-equiv="refresh" content="0; url=https://example.org">',
    "a comment before HTML": f"<!-- -->{IMAGE}",
    "entities": IMAGE.replace("<", "&lt;"),
    "a numbered entity": IMAGE.replace("<", "&#60;"),
    "a link that is code": "[x](javascript:planted())",
    "a link that is code, in capitals": "[x](JaVaScRiPt:planted())",
    "a link that is a page": "[x](data:text/html,planted)",
    "an address that is code": "<javascript:planted()>",
    "a link to another site": "[x](https://example.org)",
    "an image of another site": "![x](https://example.org/x.png)",
    "code of Python": "{{ cycler.__init__.__globals__.os.abort() }}",
    "HTML made by code of Python": "{{ '<img src=x onerror=planted()>' }}",
    "HTML in a role": "{abbr}`x (<img src=x onerror=planted()>)`",
}
