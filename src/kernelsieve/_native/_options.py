"""The one place where numba's options are chosen."""

import numba

# Serial and without the interpreter's lock: threads run over blocks of rows, outside.
native = numba.njit(cache=True, nogil=True)
inlined = numba.njit(cache=True, nogil=True, inline="always")
# Sums may be taken in any order, which makes vectors of them; infinities keep their meaning.
reduction = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
