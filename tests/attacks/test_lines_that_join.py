"""One written line of a CSV moves one row, however it is quoted."""

import pytest

import psephos as ps
from psephos.engines import as_source

DOMAIN = ps.Domain.of(sex=["f", "m"])
HOSTILE = ['"', '"" "', ',"', '"\r"', '"x"y', '\\"', "\r", "\0", '"",""', "x,y,z"]


def write(folder, name, note):
    """20,000 lines, one of them with innocent quotes; and what one person wrote, if anything."""
    path = folder / name
    lines = [f"{'fm'[i % 2]},ok" for i in range(20_000)]
    lines[15_000] = 'f,he said "hello"" '
    if note is not None:
        lines.insert(100, f"f,{note}")
    path.write_text("sex,note\n" + "\n".join(lines) + "\n", newline="")
    return path


@pytest.mark.parametrize("note", HOSTILE)
def test_a_stray_quote_takes_no_other_line_along(tmp_path, note):
    without, hostile = write(tmp_path, "without.csv", None), write(tmp_path, "with.csv", note)
    before, after = (as_source(path).count(DOMAIN, (), (), None) for path in (without, hostile))
    assert before == 20_000
    assert 0 <= after - before <= 1


def test_the_owner_hears_of_it_before_anything_is_spent(tmp_path):
    path = write(tmp_path, "with.csv", '"')
    report = ps.check(path, DOMAIN)
    assert not report.ok
    assert any("(line 102)" in finding.text for finding in report.findings)
