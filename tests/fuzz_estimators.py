"""Random data and options for every estimator: see ``support/estimator_cases.py``."""

import sys

from support.estimator_cases import main

if __name__ == "__main__":
    sys.exit(main())
