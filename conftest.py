"""Examples in README and docs run in a folder of their own, with a small file to open."""

import pytest


@pytest.fixture(autouse=True)
def _folder_for_examples(request, tmp_path, monkeypatch):
    if request.node.name.endswith(".md"):
        rows = "sex,age\nF,34\nM,7\nF,70\nM,41\n"
        (tmp_path / "people.csv").write_text(rows)
        monkeypatch.chdir(tmp_path)
