"""How Sphinx makes a site of this folder: `make docs`. The pages are plain Markdown, which GitHub shows as well."""

from __future__ import annotations

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads((Path(__file__).parent.parent / "bridge" / "pyproject.toml").read_text("utf-8"))["project"]

project = _PROJECT["name"]
release = version = _PROJECT["version"]
author = project
project_copyright = f"the authors of {project}"

extensions = ["myst_parser", "sphinx_copybutton"]
exclude_patterns = ["figures/README.md"]
highlight_language = "text"
smartquotes = False  # options are written with two hyphens, values in straight quotes
myst_heading_anchors = 4  # as GitHub makes them, so that a link to a heading works in both places
nitpicky = True
suppress_warnings = ["myst.header"]  # a level of headings that is left out, in pages of figures

html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
# A button copies the commands of a block, without prompts and outputs. Blocks of plain text are outputs.
copybutton_selector = "div:not(.highlight-text):not(.highlight-diff) > div.highlight > pre"
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
copybutton_copy_empty_lines = False
html_theme_options = {"navigation_with_keys": True}
