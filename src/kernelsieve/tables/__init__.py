"""Tables of numbers, texts and times: read them, encode them, learn a column, explain the model.

Public names are imported when first used: reading a file needs no model.

Examples
--------
>>> from kernelsieve.tables import TableEncoder
>>> TableEncoder().fit({"a": [1.0, 2.0], "b": ["x", "y"]}).get_feature_names_out().tolist()
['a', 'b=x', 'b=y']
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelsieve.tables.encoder import TableEncoder
    from kernelsieve.tables.model import TableModel
    from kernelsieve.tables.predictions import Predictions
    from kernelsieve.tables.readers import read_table
    from kernelsieve.tables.row import TablePredictor
    from kernelsieve.tables.table import Table, TableError, TableNotice, as_table

_HOMES = {
    "Predictions": "predictions",
    "Table": "table",
    "TableEncoder": "encoder",
    "TableError": "table",
    "TableModel": "model",
    "TableNotice": "table",
    "TablePredictor": "row",
    "as_table": "table",
    "read_table": "readers",
}

__all__ = [
    "Predictions",
    "Table",
    "TableEncoder",
    "TableError",
    "TableModel",
    "TableNotice",
    "TablePredictor",
    "as_table",
    "read_table",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"kernelsieve.tables.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'kernelsieve.tables' has no attribute {name!r}")
