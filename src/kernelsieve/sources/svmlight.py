"""Rows in svmlight / LIBSVM text files."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._files import is_packed, open_bytes
from kernelsieve._progress import track_rows
from kernelsieve._validation import canonical_rows, check_choice
from kernelsieve.sources.base import Block
from kernelsieve.sources.stream import StreamSource, check_finite

TEXT_BYTES = 2**25  # of text that are parsed at once
PARSED_ENTRIES = 2**22


class SvmlightSource(StreamSource):
    """The rows and labels of an svmlight / LIBSVM file, sparse or dense.

    The text is parsed once, into memory-mapped binary files in a temporary folder, which take about
    12 bytes per entry and are deleted together with the source.

    Parameters
    ----------
    path : str or path
        The file may be compressed (``.gz``, ``.bz2`` or ``.xz``).
    n_features : int, optional
        Number of columns; None takes the largest that occurs.
    zero_based : "auto", True or False
        Whether columns are counted from 0; "auto" counts from 1 if there is no column 0.
    dense : bool, default False
        Whether to yield dense blocks.
    dtype : float type, default float64
        Float type of the rows.
    folder : str or path, optional
        Parent of the temporary folder; None takes the default of the system.
    verbose : int, default 0
        1 shows the progress of parsing.

    Examples
    --------
    >>> import tempfile
    >>> from kernelsieve.sources import SvmlightSource
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/t.svm", "w") as file:
    ...         _ = file.write("1 1:0.5 3:2\\n-1 2:1\\n")
    ...     source = SvmlightSource(f"{folder}/t.svm")
    >>> source.shape, next(source.blocks()).toarray().tolist()
    ((2, 3), [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]])
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        n_features: int | None = None,
        zero_based: Any = "auto",
        dense: bool = False,
        dtype: Any = np.float64,
        folder: str | os.PathLike[str] | None = None,
        verbose: int = 0,
    ) -> None:
        check_choice(zero_based, "zero_based", ("auto", True, False))
        self.where = os.fspath(path)
        self.dtype, self.sparse = np.dtype(dtype), not dense
        store = tempfile.TemporaryDirectory(prefix="kernelsieve-", dir=folder)
        try:
            self._parse(Path(store.name), verbose)
            self._open(Path(store.name))
        except BaseException:
            store.cleanup()
            raise
        self._remove = weakref.finalize(self, store.cleanup)
        lowest, highest = self._range
        self._lowest = 0 if zero_based is True or (zero_based == "auto" and lowest == 0) else 1
        if lowest < self._lowest:
            raise ValueError(f"{self.where} has a column 0: pass zero_based=True")
        found = highest + 1 - self._lowest
        if n_features is not None and n_features < found:
            raise ValueError(
                f"{self.where} has {found} columns, more than n_features={n_features}: raise it"
            )
        super().__init__(len(self._starts) - 1, found if n_features is None else n_features)
        self._checked = True  # by the parser
        self._bounds = self._block_bounds()
        self.n_blocks = len(self._bounds) - 1
        self.target_shape = ()

    def _parse(self, folder: Path, verbose: int) -> None:
        """Parse the text into binary files; an error names the block of text."""
        from sklearn.datasets import load_svmlight_file

        path = Path(self.where)
        start, counts = 0, [np.zeros(1, dtype=np.int64)]
        size = None if is_packed(path) else path.stat().st_size  # of the text
        of_blocks = "" if size is None else f" of {max(1, -(-size // TEXT_BYTES))}"
        self._range = (np.iinfo(np.int64).max, -1)
        names = ("values", "columns", "targets")
        files = [open(folder / name, "wb") for name in names]  # noqa: SIM115
        with open_bytes(path) as text, files[0], files[1], files[2]:
            pieces = enumerate(_pieces(text))
            for number, piece in track_rows(
                ((len(piece), (number, piece)) for number, piece in pieces),
                size,
                "Parsing (bytes)",
                verbose,
            ):
                try:
                    X, y = load_svmlight_file(BytesIO(piece), dtype=self.dtype, zero_based=True)
                    X = canonical_rows(X)
                    check_finite(X, None)
                    if not np.isfinite(y).all():
                        raise ValueError("NaN or infinity among its labels")
                except ValueError as error:
                    raise ValueError(
                        f"block {number}{of_blocks} of {self.where} (from row {start} on): {error}"
                    ) from error
                if X.nnz:
                    low, high = int(X.indices.min()), int(X.indices.max())
                    self._range = min(self._range[0], low), max(self._range[1], high)
                X.data.tofile(files[0])
                X.indices.astype(np.int32).tofile(files[1])
                y.tofile(files[2])
                counts.append(np.diff(X.indptr).astype(np.int64))
                start += X.shape[0]
        if start == 0:
            raise ValueError(f"{self.where} has no rows")
        self._starts = np.cumsum(np.concatenate(counts))

    def _open(self, folder: Path) -> None:
        kinds = (("values", self.dtype), ("columns", np.int32), ("targets", np.float64))
        self._values, self._columns, self._y = (
            np.memmap(folder / name, dtype=kind, mode="r")
            if (folder / name).stat().st_size
            else np.empty(0, dtype=kind)
            for name, kind in kinds
        )

    def _block_bounds(self) -> NDArray[np.int64]:
        """Boundaries of blocks of about PARSED_ENTRIES entries."""
        count = max(1, -(-int(self._starts[-1]) // PARSED_ENTRIES))
        marks = np.linspace(0, self._starts[-1], count + 1)[1:-1]
        inner = np.searchsorted(self._starts, marks)
        return np.unique(np.concatenate([[0], inner, [len(self._starts) - 1]]))

    def raw_blocks(self) -> Iterator[tuple[Any, Any]]:
        for start, stop in zip(self._bounds[:-1], self._bounds[1:], strict=True):
            first, last = self._starts[start], self._starts[stop]
            entries = slice(first, last)
            yield self._rows(entries, self._starts[start : stop + 1] - first), self._y[start:stop]

    def _rows(self, entries: Any, starts: NDArray[np.int64]) -> Any:
        columns = self._columns[entries]
        if self._lowest:
            columns = columns - np.int32(self._lowest)
        X = sp.csr_array((len(starts) - 1, self.shape[1]), dtype=self.dtype)
        X.data, X.indices = np.asarray(self._values[entries]), np.asarray(columns)
        X.indptr = starts.astype(np.int32)
        X.has_canonical_format = True  # the parser saw to it
        return X if self.sparse else X.toarray()

    def take(self, rows: NDArray[np.int64]) -> Block:
        lengths = self._starts[rows + 1] - self._starts[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.repeat(self._starts[rows] - starts[:-1], lengths) + np.arange(starts[-1])
        return Block(self._rows(entries, starts), np.asarray(self._y[rows]))

    def expect(self, rows: NDArray[np.int64]) -> None:
        """Do nothing: every row can be read directly."""


def _pieces(text: BinaryIO) -> Iterator[bytes]:
    """Split the text into pieces of whole lines."""
    rest = b""
    while piece := text.read(TEXT_BYTES):
        end = piece.rfind(b"\n") + 1
        if end:
            yield rest + piece[:end]
            rest = piece[end:]
        else:
            rest += piece
    if rest:
        yield rest
