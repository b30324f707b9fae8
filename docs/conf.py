"""Sphinx configuration: `make docs` builds the site, and fails at a broken link or reference."""

from importlib.metadata import version as installed

project = "Kolumn"
copyright = "The Kolumn authors"
release = version = installed("kolumn")

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "sphinx.ext.intersphinx", "sphinx_copybutton", "sphinxcontrib.typer"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

intersphinx_mapping: dict[str, tuple[str, None]] = {}
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

html_theme = "furo"
html_title = "Kolumn"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
# The examples show output; `output` is a name for that.
highlight_language = "text"
