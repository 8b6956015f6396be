"""What a release file with `by` asks of every part, and what it cannot ask."""

from __future__ import annotations

from collections.abc import Sequence

from psephos.domain.domain import Domain
from psephos.domain.part_tree import PartTree
from psephos.errors import PsephosError, ReleaseError
from psephos.release.spec.entries import ReleaseFile
from psephos.release.spec.tables import Table
from psephos.workload.workload import Workload


def inner_domain(domain: Domain, file: ReleaseFile) -> Domain:
    """The attributes that are counted inside a part; all of them where nothing is said of parts."""
    if not file.by:
        return domain
    try:
        tree = PartTree.of(domain, file.by)
    except PsephosError as error:
        raise ReleaseError(str(error)) from None
    for name in tree.attributes:
        coarser = {level.name for level in domain[name].levels}
        twice = [each for each in tree.attributes if each in coarser]
        if twice:
            raise ReleaseError(
                f"by: {twice[0]!r} is an attribute and a level of {name!r}; take [schema."
                f"{twice[0]}] out if the level is meant, or rename the level"
            )
    inner = [name for name in domain.names if name not in tree.attributes]
    if not inner:
        raise ReleaseError(
            f"by: {', '.join(file.by)} leaves no attribute to count inside the parts; declare one "
            "more, or take the finest out of `by`"
        )
    twins = sorted(set(inner) & set(tree.names))
    if twins:
        raise ReleaseError(f"by: {twins[0]!r} is also an attribute inside the parts; rename one")
    return domain.project(inner)


def check_asked(file: ReleaseFile) -> None:
    """Refuse what releases in parts do not have, with its place in the file."""
    names = {
        "persons": bool(file.persons),
        "zeros": bool(file.zeros),
        "builds_on": bool(file.builds_on),
        "stand_in": file.stand_in is not None,
        "synthetic": file.synthetic is not None,
        "total": file.total is not None,
        "method": file.method.name != "measure",
        "output.consistency": file.output.consistency != "l2",
        "output.views": "views" in file.output.model_fields_set,
        "output.published": file.output.published != "auto",
        "output.prior": file.output.prior is not None and file.output.prior != "independent",
    }
    for place, there in names.items():
        if there:
            raise ReleaseError(f"{place}: a release in parts (`by`) has none; leave it out")
    # What is left out of release.json is the default, so a bundle's own file passes.
    formats = file.output.formats if "formats" in file.output.model_fields_set else ("parquet",)
    if formats != ("parquet",):
        raise ReleaseError(
            "output.formats: a release in parts (`by`) writes partitioned Parquet, one folder for "
            'each table and level; write formats = ["parquet"], or leave it out, and make other '
            "files from a level's table (`PartsBundle.table`)"
        )
    targets = [table.name for table in file.tables if table.target is not None]
    if targets or file.budget is None:
        raise ReleaseError(
            "budget: a release in parts (`by`) is paid from [budget]; write it, and take targets "
            f"out{f' of {targets[0]!r}' if targets else ''}"
        )


def check_compiled(workload: Workload, tables: Sequence[Table], inner: Domain) -> None:
    """Refuse tables that count no rows, and SQL that looks at several attributes at once."""
    for table in tables:
        if table.statistics:
            raise ReleaseError(
                f"tables {table.name!r}: a release in parts (`by`) counts rows; ask for counts"
            )
    if workload.domain != inner:
        raise ReleaseError(
            "tables: a condition looks at several attributes at once, which releases in parts "
            "(`by`) do not take; declare levels, and group by them"
        )
