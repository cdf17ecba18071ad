"""Fitted models as ONNX files: standard operators, any number of rows."""

from kernelsieve.export.entry import export_onnx
from kernelsieve.export.graph import ExportError

__all__ = ["ExportError", "export_onnx"]
