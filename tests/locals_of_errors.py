"""Every error that a test expects is looked through as a crash reporter would: frame by frame.

`pytest.raises` is replaced by one that, once an error was caught, formats the locals of all frames
of psephos that it passed, and of all errors behind it, and looks for counts: for four numbers in a
row as a vault has counted them. The counts are told by the vaults themselves.
"""

import re
import reprlib
from pathlib import Path

import numpy as np
import pytest

import psephos
from psephos.kernel.vault import Vault

SOURCE = str(Path(psephos.__file__).parent)
LOOKED_AT = ("kernel", "engines", "matrix", "protect.py")
LENGTH = 4
ALONE = r"(?<![\w.])-?\d{1,15}(?![\w.]\w)(?!\w)"
"""A whole number by itself, and not some digits of a hash or of a fraction."""
COUNTED: set[tuple[int, ...]] = set()
FORMATTED = [0]
plain_raises = pytest.raises
plain_tables = Vault.tables


def remember(self, tables, keep):
    counted = plain_tables(self, tables, keep)
    for counts in counted:
        start = tuple(int(count) for count in counts[:LENGTH])
        # Few and small numbers, or those in a row, turn up by chance.
        if len(set(start)) == LENGTH and set(np.diff(start)) != {1} and max(start) > 9:
            COUNTED.add(start)
    return counted


def frames(error):
    left, seen = [error], set()
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        left += [each.__cause__, each.__context__]
        step = each.__traceback__
        while step is not None:
            yield step.tb_frame
            step = step.tb_next


def text_of(value):
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - of a value that was forged, or is not whole yet
        return ""


def look_through(error):
    """No frame of psephos that an error passed shows counts, nor does the error itself."""
    shown = [str(error)]
    for frame in frames(error):
        file = frame.f_code.co_filename
        if file.startswith(SOURCE) and Path(file).relative_to(SOURCE).parts[0] in LOOKED_AT:
            shown += [text_of(value) for value in list(frame.f_locals.values())]
    FORMATTED[0] += 1
    for text in shown:
        numbers = tuple(int(digits) for digits in re.findall(ALONE, text[:20_000]))
        runs = {numbers[i : i + LENGTH] for i in range(len(numbers) - LENGTH + 1)}
        assert not runs & COUNTED, f"a frame shows true counts: {reprlib.repr(text)}"


class Looked:
    """A context of pytest's that looks through what it caught."""

    def __init__(self, context):
        self.context = context

    def __enter__(self):
        return self.context.__enter__()

    def __exit__(self, kind, error, trace):
        caught = self.context.__exit__(kind, error, trace)
        if caught and error is not None:
            look_through(error)
        return caught


def raises(*given, **named):
    return (
        Looked(plain_raises(*given, **named)) if len(given) < 2 else plain_raises(*given, **named)
    )


def install():
    pytest.raises = raises
    Vault.tables = remember
