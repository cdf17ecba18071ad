"""Random use of the command line: see ``support/command_line_cases.py``."""

import sys

from support.command_line_cases import main

if __name__ == "__main__":
    sys.exit(main())
