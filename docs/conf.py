"""How the documentation is built: offline, with warnings as errors.

python -m sphinx -W --keep-going -n -b html docs docs/_build/html
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kernelsieve

HERE = Path(__file__).parent

project = "kernelsieve"
author = "the kernelsieve developers"
copyright = author
release = version = kernelsieve.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
templates_path = ["_templates"]
nitpicky = True

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings name the types, with shapes
numpydoc_show_class_members = False  # the template lists what is ours

html_theme = "pydata_sphinx_theme"
html_title = "kernelsieve"
html_static_path = ["_static"]
html_css_files = ["kernelsieve.css"]
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {name: [] for name in ("getting-started", "benchmarks", "gallery/**")}
toc_object_entries_show_parents = "hide"
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",  # every example runs
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "write_computation_times": False,  # its page would load scripts from the network
    "min_reported_time": 0,
    "plot_gallery": "True",
    "image_scrapers": ("matplotlib",),
    "reset_modules": ("matplotlib",),
    "copyfile_regex": r".*\.rst",
}


def _skip_foreign(
    app: Any, what: str, name: str, thing: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what scikit-learn gives to every estimator: it is documented there."""
    function = getattr(thing, "fget", thing)
    module = getattr(function, "__module__", None) or ""
    return True if module.startswith("sklearn") else None


# Links that lead to a file where the pages are read as files, and to a page here.
PAGES = {"../examples/README.rst": "gallery/index.rst", "../benchmarks/README.md": "benchmarks.md"}


def _follow_links(app: Any, name: str, source: list[str]) -> None:
    for file, here in PAGES.items():
        source[0] = source[0].replace(f"]({file})", f"]({here})")


def setup(app: Any) -> None:
    app.connect("autodoc-skip-member", _skip_foreign)
    app.connect("source-read", _follow_links)
