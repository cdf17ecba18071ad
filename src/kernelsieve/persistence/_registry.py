"""The classes that a model file may name: nothing else is ever looked up, imported or called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelsieve._state import InvalidStateError, Persistent
from kernelsieve.persistence._errors import InvalidContentError, ModelFileError
from kernelsieve.persistence._nodes import Fields, Reader, wrong

ANY = object()
DATA = object()


@dataclass(frozen=True)
class Form:
    """How objects of one class are taken apart and put together.

    Attributes
    ----------
    cls : type
    pack : callable
        (object, its name in errors) -> fields, each of which is data, an array or an object.
    unpack : callable
        Fields -> object. It checks all that the methods of the object rely on.
    """

    cls: type
    pack: Callable[[Any, str], dict[str, Any]]
    unpack: Callable[[Fields], Any]


_FORMS: dict[str, Form] = {}


def add(form: Form) -> None:
    """Add a class by its name."""
    known = _FORMS.get(form.cls.__name__)
    if known is not None and known.cls is not form.cls:
        raise ValueError(f"{known.cls!r} is registered as {form.cls.__name__!r} already")
    _FORMS[form.cls.__name__] = form


def add_persistent(cls: type[Persistent]) -> None:
    """Add a class that owns its state."""

    def pack(thing: Any, where: str) -> dict[str, Any]:
        try:
            return thing.get_state()
        except InvalidStateError as error:
            raise ModelFileError(f"{where} ({cls.__name__}): {error}") from error

    def unpack(read: Fields) -> Any:
        state = {name: read.data(name, objects=True) for name in read.names_left()}
        try:
            return cls.from_state(state)
        except ValueError as error:
            raise InvalidContentError(f"{read.where}: {error}") from error

    add(Form(cls, pack, unpack))


def register(
    cls: type, fields: Mapping[str, Any], check: Callable[[Any], None] | None = None
) -> None:
    """Let model files hold objects of a further class.

    Parameters
    ----------
    cls : type
        Known by its ``__name__`` in files.
    fields : mapping
        What each attribute is: ``DATA`` (None, truth values, numbers, texts, arrays, and lists,
        tuples and dicts of them), a registered class, a tuple of such classes, or ``ANY`` of
        them. Objects are made without ``__init__``, by setting these attributes.
    check : callable, optional
        Called with every object that was read. It must raise ValueError where an attribute is
        not what the methods of the class rely on: whoever made the file may have put in any data.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelsieve import persistence
    >>> class Units:
    ...     def __init__(self, names):
    ...         self.names = names
    >>> def check_units(units):
    ...     if not all(isinstance(name, str) for name in units.names):
    ...         raise ValueError("names are texts")
    >>> persistence.register(Units, {"names": persistence.DATA}, check_units)
    >>> path = Path(tempfile.mkdtemp()) / "units.ks"
    >>> persistence.save(Units(["m", "kg"]), path)
    >>> persistence.load(path).names
    ['m', 'kg']
    """
    rules = dict(fields)

    def pack(thing: Any, where: str) -> dict[str, Any]:
        found = vars(thing)
        for name in sorted(found.keys() ^ rules.keys()):
            reason = "lacks" if name in rules else "has, beyond what is registered,"
            raise ModelFileError(f"{where} ({cls.__name__}) {reason} the attribute {name!r}")
        return {name: found[name] for name in rules}

    def unpack(read: Fields) -> Any:
        thing: Any = object.__new__(cls)
        for name, rule in rules.items():
            setattr(thing, name, _by_rule(read, name, rule))
        if check is not None:
            try:
                check(thing)
            except ValueError as error:
                wrong(read.where, f"is not valid: {error}")
        return thing

    add(Form(cls, pack, unpack))


def _by_rule(read: Fields, name: str, rule: Any) -> Any:
    if rule is DATA:
        return read.data(name)
    if rule is ANY:
        return read.thing(name)
    return read.thing(name, *(rule if isinstance(rule, tuple) else (rule,)))


def pack(thing: Any, where: str) -> tuple[str, dict[str, Any]]:
    """The name and the fields of an object of a registered class."""
    cls = type(thing)
    if not _is_known(cls):
        raise ModelFileError(
            f"{where} is a {cls.__module__}.{cls.__qualname__}, which a model file does not hold"
            f"{_way_out(thing, where)}"
        )
    return cls.__name__, _FORMS[cls.__name__].pack(thing, where)


def _is_known(cls: type) -> bool:
    return cls.__name__ in _FORMS and _FORMS[cls.__name__].cls is cls


def _way_out(thing: Any, where: str) -> str:
    attribute = where.rpartition(".")[2]
    if attribute == "random_state":
        return ": set_params(random_state=0), say; what was fitted stays as it is"
    if attribute == "cv":
        return ": set_params(cv=None); what was fitted stays as it is"
    if callable(thing):
        return ": a function is code; use a kernel of kernelsieve.kernels"
    return ""


def unpack(node: dict[str, Any], reader: Reader, where: str, classes: Any) -> Any:
    """The object of a node, if its class is among those that may stand here."""
    name = node["object"]
    form = _FORMS.get(name) if isinstance(name, str) else None
    if form is None:
        shown = name[:40] if isinstance(name, str) else type(name).__name__
        wrong(where, f"is of class {shown!r}, which this version does not know")
    if classes is not None and not issubclass(form.cls, classes):
        wrong(where, f"is a {name}, which has no place there")
    fields = Fields({"table": node["fields"]}, reader, f"{where} ({name})")
    thing = form.unpack(fields)
    fields.close()
    return thing
