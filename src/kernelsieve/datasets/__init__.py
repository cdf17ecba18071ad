"""Datasets by name: built in, in a local folder, or downloaded.

>>> from kernelsieve import datasets
>>> data = datasets.load("diabetes")
>>> data.X.shape, data.task
((442, 10), 'regression')
"""

from kernelsieve.datasets.entry import Dataset, DatasetError, Entry
from kernelsieve.datasets.folders import cache_folder, data_folder, find_files
from kernelsieve.datasets.generators import make_friedman, make_onehot, make_product
from kernelsieve.datasets.loading import ensure_files, load
from kernelsieve.datasets.registry import describe, names

__all__ = [
    "Dataset",
    "DatasetError",
    "Entry",
    "cache_folder",
    "data_folder",
    "describe",
    "ensure_files",
    "find_files",
    "load",
    "make_friedman",
    "make_onehot",
    "make_product",
    "names",
]
