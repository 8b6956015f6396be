"""The small release of tests/release, for reports."""

from tests.release.conftest import release_path

__all__ = ["release_path"]
