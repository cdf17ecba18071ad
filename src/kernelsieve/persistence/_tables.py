"""Encoders of tables and the models on them, as fields of a model file."""

from __future__ import annotations

import sys
from typing import Any

from kernelsieve.models import KernelRidge, KernelRidgeClassifier
from kernelsieve.persistence._estimators import fitted, is_fitted, parameter_names
from kernelsieve.persistence._nodes import Fields, wrong
from kernelsieve.persistence._registry import Form, add
from kernelsieve.tables.encoder import MOST_LEVELS, Levels, Scaled, TableEncoder
from kernelsieve.tables.facts import check_facts
from kernelsieve.tables.model import TableModel
from kernelsieve.tables.target import TASKS

MOST_COLUMNS = 2**31


def add_tables() -> None:
    """Let model files hold encoders and models of tables."""
    add(Form(TableEncoder, _pack_encoder, _unpack_encoder))
    add(Form(TableModel, _pack_model, _unpack_model))


def _pack_encoder(encoder: Any, where: str) -> dict[str, Any]:
    learned = None
    if is_fitted(encoder):
        learned = {
            "columns": [
                {"numbers": vars(c)} if isinstance(c, Scaled) else {"texts": vars(c)}
                for c in encoder.columns_
            ],
            "matrix_columns": encoder.matrix_columns_,
            "sparse": encoder.sparse_,
        }
    return {"drop": _plain(encoder.drop), "strict": encoder.strict, "fitted": learned}


def _plain(names: Any) -> Any:
    """Any sequence of texts as one that a file holds."""
    return names if isinstance(names, list | tuple) else list(names)


def _unpack_encoder(read: Fields) -> TableEncoder:
    encoder = TableEncoder(_texts(read, "drop"), read.flag("strict"))
    if read.given("fitted"):
        learned = read.part("fitted")
        encoder.columns_ = [_unpack_column(column) for column in learned.parts("columns")]
        encoder.matrix_columns_ = learned.integer("matrix_columns", 0, MOST_COLUMNS)
        encoder.sparse_ = learned.flag("sparse")
        learned.close()
        if encoder.matrix_columns_ and not encoder.sparse_:
            wrong(read.where, "makes a dense matrix of a sparse one")
    return encoder


def _unpack_column(read: Fields) -> Scaled | Levels:
    if read.has("numbers"):
        column: Scaled | Levels = _unpack_numbers(read.part("numbers"))
    else:
        texts = read.part("texts")
        levels = tuple(_texts(texts, "levels"))
        if len(levels) > MOST_LEVELS + 2:
            wrong(texts.where, f"has {len(levels):,} levels")
        column = Levels(texts.text("name"), levels)
        texts.close()
    read.close()
    return column


def _unpack_numbers(read: Fields) -> Scaled:
    large = sys.float_info.max
    column = Scaled(
        read.text("name"),
        read.flag("is_time"),
        read.number("fill", -large, large),
        read.number("mean", -large, large),
        read.number("scale", 5e-324, large),
    )
    read.close()
    return column


def _texts(read: Fields, name: str) -> list[str] | tuple[str, ...]:
    value = read.data(name)
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        wrong(read.where, f"has {name} that is no list of texts")
    return value


def _pack_model(model: Any, where: str) -> dict[str, Any]:
    learned = None
    if is_fitted(model):
        names = ("encoder_", "model_", "task_", "alpha_", "gamma_", "facts_")
        learned = {name.removesuffix("_"): getattr(model, name) for name in names}
    parameters = model.get_params(deep=False) | {"drop": _plain(model.drop)}
    return {"parameters": parameters, "fitted": learned}


def _unpack_model(read: Fields) -> TableModel:
    given = read.part("parameters")
    names = parameter_names(TableModel)
    values = {name: given.data(name, objects=name == "kernel") for name in names if name != "drop"}
    model = TableModel(**values, drop=_texts(given, "drop"))
    given.close()
    if read.given("fitted"):
        _restore_model(model, read.part("fitted"))
    return model


def _restore_model(model: TableModel, read: Fields) -> None:
    model.encoder_ = fitted(read, "encoder", TableEncoder)
    model.model_ = fitted(read, "model", KernelRidge, KernelRidgeClassifier)
    model.task_ = read.choice("task", TASKS[1:])
    model.alpha_, model.gamma_ = read.number("alpha", 0.0), read.data("gamma")
    if not (model.gamma_ is None or isinstance(model.gamma_, int | float | str)):
        wrong(read.where, "has a gamma that is no number")
    model.facts_ = read.data("facts")
    read.close()
    if (model.task_ == "regression") != isinstance(model.model_, KernelRidge):
        wrong(read.where, f"has a {type(model.model_).__name__} for {model.task_}")
    width = model.encoder_.width
    if model.model_.n_features_in_ != width:
        wrong(
            read.where,
            f"encodes {width} columns, and its model takes {model.model_.n_features_in_}",
        )
    if not isinstance(model.target, str):
        wrong(read.where, "names no target")
    try:
        check_facts(model.facts_)
    except (TypeError, ValueError, KeyError) as error:
        wrong(read.where, f"has facts that cannot be shown: {error!r}")
