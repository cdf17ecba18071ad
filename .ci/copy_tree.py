"""Copy this checkout, without what tools and tests leave behind: python .ci/copy_tree.py FOLDER."""

import shutil
import sys
from pathlib import Path

LEAVE = shutil.ignore_patterns(
    ".git", ".venv", "dist", "build", "_build", "bench-results", "__pycache__", ".*_cache",
    ".hypothesis", "*.egg-info",
)  # fmt: skip

shutil.copytree(Path(__file__).parents[1], sys.argv[1], ignore=LEAVE)
