"""Random tables and models as ONNX files: see ``support/onnx_cases.py``."""

import sys

from support.onnx_cases import main

if __name__ == "__main__":
    sys.exit(main())
