import tempfile
from pathlib import Path

import pytest

from tests.kernel.ledgers import SHM, make


@pytest.fixture
def folder():
    """A folder in memory, if there is one."""
    with tempfile.TemporaryDirectory(dir=SHM) as made:
        yield Path(made)


@pytest.fixture
def ledger(folder):
    return make(folder)
