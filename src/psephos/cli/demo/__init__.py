"""The demonstration: a release file and its data, ready to run.

The table is a research extract of the 1960 census, 214,144 men, from the package causaldata
(Fetter 2013). It is public; here it plays the part of a secret one.
"""

from __future__ import annotations

import shutil
import warnings
from importlib import resources
from pathlib import Path
from typing import Any

from psephos.errors import SourceError

DEMO_COLUMNS = ["bpl", "qob", "nonwhite", "vet_wwko", "home_ownership"]


def prepare(folder: Path) -> Path:
    """Write the demonstration's release file and data to a folder; files that exist are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / "release.toml"
    if not place.exists():
        with resources.as_file(resources.files(__name__) / "release.toml") as original:
            shutil.copyfile(original, place)
    data = folder / "men_1960.csv"
    if not data.exists():
        _men().to_csv(data, index=False)
    return place


def _men() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from causaldata import mortgages

            return mortgages.load_pandas().data[DEMO_COLUMNS]
    except ImportError:
        raise SourceError(
            'the demonstration uses real data from another package: pip install "psephos[demo]"'
        ) from None
