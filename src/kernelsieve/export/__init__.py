"""Fitted models as ONNX files: standard operators, any number of rows."""

from kernelsieve.export.check import ExportNotice
from kernelsieve.export.entry import export_onnx
from kernelsieve.export.graph import ExportError

__all__ = ["ExportError", "ExportNotice", "export_onnx"]
