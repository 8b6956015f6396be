"""How text is read: as UTF-8 where it can be, and else so that no entry can make it fail."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Reading:
    """The Arrow type in which DuckDB gets a column, and the entry as SQL of that column {c}."""

    arrow_type: pa.DataType
    entry: str = "{c}"
    is_text: bool = False
    """Whether it is text that may not be UTF-8; persons are then told apart by its bytes."""


TEXT_READING = Reading(
    pa.large_binary(), "COALESCE(TRY(decode({c})), CAST({c} AS VARCHAR))", is_text=True
)
"""Bytes that are not UTF-8 are shown escaped."""


def is_text(kind: pa.DataType) -> bool:
    """Whether entries are text, which Arrow does not check to be UTF-8."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )
