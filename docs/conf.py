"""Sphinx builds the documentation site with this: `make docs`. Its sources are the same pages that
are read in the repository, from its root on: their links lead to the same places in both."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jupyter_gpushare.cli.main import make_parser  # noqa: E402
from jupyter_gpushare.kernel.magics import USAGE  # noqa: E402
from jupyter_gpushare.version import __version__  # noqa: E402

project = "jupyter-gpushare"
author = "The jupyter-gpushare developers"
copyright = f"2026, {author}"
version = release = __version__

highlight_language = "none"
root_doc = "docs/index"
include_patterns = ["docs/**.md", "*.md", "hook/README.md", "hook/sim/README.md"]
exclude_patterns = ["build", ".venv", "dist"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "signature"

html_theme = "pydata_sphinx_theme"
html_title = project
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
}
html_sidebars = {"docs/index": []}


# ---- the reference pages that come from the code ------------------------------------------------


def command_line() -> str:
    """A section for each verb, with its help text."""
    parser = make_parser()
    (verbs,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    helps = {f"jupyter gpushare {name}": each.format_help() for name, each in verbs.choices.items()}
    sections = [f"## {title}\n\n```text\n{text}```\n" for title, text in helps.items()]
    return "\n".join([f"```text\n{parser.format_help()}```\n", *sections])


def magics() -> str:
    return f"```text\n{USAGE}\n```\n"


FILLED_IN = {"docs/command-line": command_line, "docs/magics": magics}
"""Pages whose last line stands for what the code says."""
MARK = "<!-- filled in when the site is built -->"


def fill_in(app: object, page: str, source: list[str]) -> None:
    if page in FILLED_IN:
        assert source[0].count(MARK) == 1, f"{page}.md needs one line {MARK!r}."
        source[0] = source[0].replace(MARK, FILLED_IN[page]())


def lead_to_the_first_page(app: Any, error: Exception | None) -> None:
    """The pages lie as in the repository, and browsers ask for the site's root."""
    if error is None and app.builder.format == "html":
        target = '<meta http-equiv="refresh" content="0; url=docs/index.html">'
        page = f"<!doctype html><title>{project}</title>{target}\n"
        (Path(app.outdir) / "index.html").write_text(page)


def setup(app: Any) -> None:
    os.environ["COLUMNS"] = "76"
    app.add_lexer(
        "mermaid", TextLexer
    )  # a diagram's text: drawing it takes a script from elsewhere
    app.connect("source-read", fill_in)
    app.connect("build-finished", lead_to_the_first_page)
