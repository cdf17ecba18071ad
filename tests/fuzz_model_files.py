"""Damaged model files by the thousand: see ``support/model_file_mutations.py``."""

import sys

from support.model_file_mutations import main

if __name__ == "__main__":
    sys.exit(main())
