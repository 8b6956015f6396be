"""Further questions about parts, in SQL over the attributes inside them: free of charge."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from psephos.errors import PsephosError, ReleaseError
from psephos.release.bundle.files import report_damage, sha256_of
from psephos.release.parts.bundle import ESTIMATE_FOLDER, PartPath, PartsBundle
from psephos.release.parts.tables import part_rows_of
from psephos.release.spec.tables import Table
from psephos.workload.sql import merge_attributes, read_sql, sql_products
from psephos.workload.workload import Workload


def parts_answers(
    bundle: PartsBundle,
    sql: str | Sequence[str],
    *,
    level: str = "",
    part: PartPath = (),
    dialect: str | None = None,
) -> tuple[Workload, pa.Table]:
    """What is asked, and answers for the whole, for a part, or for all parts of a level.

    Counts have their error and interval beside them; see `psephos.release.ask.ask.ask`.
    """
    marks = bundle.manifest["files"]
    stored = [name for name in marks if name.startswith(f"{ESTIMATE_FOLDER}/")]
    for name in ("release.json", "receipts.bin", "strategy.bin", *stored):
        with report_damage(bundle.path / name):
            if sha256_of(bundle.path / name) != marks.get(name):
                raise ReleaseError(f"{bundle.path / name} has changed since the release")
    domain = bundle.job.workload.domain
    tables = read_sql(domain, sql, dialect=dialect)
    merged, blocks = merge_attributes(domain, tables)
    if merged != domain or any(table.aggregate.kind != "count" for table in tables):
        raise ReleaseError(
            "of parts, counts are asked with conditions on single columns joined by AND; ask so, "
            "or read the tables of the bundle"
        )
    workload = Workload(domain, sql_products(tables, domain, merged, blocks))
    question = Table("ask", "ask", range(len(workload.products)))
    number, place = bundle.place(level, part)
    parts = range(bundle.tree.sizes[number]) if place is None else range(place, place + 1)
    try:
        answers = bundle.answer(workload, level, part)
    except PsephosError as error:
        raise ReleaseError(
            f"{error}. A release in parts answers what follows from what its parts were asked"
        ) from None
    numbers = {"count": answers.pop("consistent"), **answers}
    return workload, part_rows_of(workload, bundle.tree, question, number, parts, numbers)
