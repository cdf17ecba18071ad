"""People's own tables: read them, make numbers of them, learn a column, explain it.

Examples
--------
>>> from kernelsieve.tables import TableEncoder
>>> TableEncoder().fit({"a": [1.0, 2.0], "b": ["x", "y"]}).get_feature_names_out().tolist()
['a', 'b=x', 'b=y']
"""

from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.model import TableModel
from kernelsieve.tables.readers import read_table
from kernelsieve.tables.table import Table, TableError, TableNotice, as_table

__all__ = [
    "Table",
    "TableEncoder",
    "TableError",
    "TableModel",
    "TableNotice",
    "as_table",
    "read_table",
]
