"""What goes wrong with a model file."""

from __future__ import annotations


class ModelFileError(ValueError):
    """A model file that cannot be read, or a model that cannot be written to one."""


class InvalidContentError(ModelFileError):
    """Something in a file that is whole, or in a model to be written, that has no place there."""
