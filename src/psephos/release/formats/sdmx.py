"""SDMX 3.0: each table as SDMX-CSV 2.0, and one structure message with all code lists.

Labels such as "[0, 5000)" are no codes of SDMX; code lists say what each code stands for, and
totals are `_T`. Tables of several parts have one more dimension for them. Standard errors and
intervals are attributes of the observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.release.bundle.files import write_json
from psephos.release.formats.csv_text import write_csv
from psephos.release.formats.cubes import ALL_VALUES, CodeList, Cubes
from psephos.release.formats.names import identifiers
from psephos.release.formats.publication import FormatFiles, Publication, PublishedTable

SDMX_FOLDER = "sdmx"
STRUCTURE_FILE = f"{SDMX_FOLDER}/structure.json"
SDMX_SCHEMA = (
    "https://raw.githubusercontent.com/sdmx-twg/sdmx-json/develop/structure-message/tools/schemas/"
    "2.0.0/sdmx-json-structure-schema.json"
)
SDMX_VERSION = "1.0"
OBSERVATION = "OBS_VALUE"
FIXED_COLUMNS = ("STRUCTURE", "STRUCTURE_ID", "ACTION")
URN = "urn:sdmx:org.sdmx.infomodel."
PART_DIMENSION = "PART"


def sdmx(publication: Publication) -> FormatFiles:
    """A structure message, and a file of observations for each table."""
    agency = identifiers([publication.job.file.publisher or "publisher"])[0].upper()
    names = identifiers([table.stem for table in publication.counts])
    flows = [
        _Flow(publication, table, agency, name.upper())
        for table, name in zip(publication.counts, names, strict=True)
    ]
    yield STRUCTURE_FILE, lambda place: write_json(place, _message(publication, agency, flows))
    for flow in flows:
        yield f"{SDMX_FOLDER}/{flow.shown.stem}.csv", flow.write


@dataclass(frozen=True, eq=False)
class _Dimension:
    name: str
    title: str
    column: str | None
    """None for the parts of a table."""
    labels: dict[str, str]
    """Of each code."""


class _Flow:
    """One table as a dataflow with its structure."""

    def __init__(
        self, publication: Publication, shown: PublishedTable, agency: str, name: str
    ) -> None:
        self.publication, self.shown, self.agency, self.name = publication, shown, agency, name
        self.cubes = Cubes.of(shown.questions, shown.table, publication.job.titles)
        errors = ["stderr", "low", "high"] if shown.errors else []
        whole = ["consistent"] if shown.whole else []
        mark = ["made_up"] if shown.files.simulation else []
        self.attributes = [each.upper() for each in (*whole, *errors, *mark)]
        self.dimensions = self._dimensions()

    def _dimensions(self) -> list[_Dimension]:
        taken = (*FIXED_COLUMNS, *self.attributes, OBSERVATION, PART_DIMENSION)
        columns = self.cubes.columns
        names = identifiers([each.column for each in columns], taken)
        sides = [
            _Dimension(name.upper(), each.title, each.column, self._labels(each))
            for name, each in zip(names, columns, strict=True)
        ]
        parts = {f"P{i}": cube.part for i, cube in enumerate(self.cubes.parts, 1)}
        if len(parts) > 1 or not sides:
            labels = parts if len(parts) > 1 else {"P1": self.shown.table.title}
            sides.insert(0, _Dimension(PART_DIMENSION, "Part", None, labels))
        return sides

    def code_list(self, dimension: _Dimension) -> dict[str, Any]:
        codes = [{"id": code, "name": label or code} for code, label in dimension.labels.items()]
        return {
            **self._maintained(f"CL_{self.name}_{dimension.name}", dimension.title),
            "codes": codes,
        }

    def _labels(self, column: CodeList) -> dict[str, str]:
        """Of all codes, and of totals where a part does not look at the column."""
        every = all(column.column in cube.sides for cube in self.cubes.parts)
        return column.labels if every else {**column.labels, ALL_VALUES: column.total}

    def concepts(self) -> dict[str, Any]:
        words = self.publication.column_words(self.shown.view)
        texts = {each.name: each.title for each in self.dimensions}
        texts |= {OBSERVATION: words["count"]}
        texts |= {each: words[each.lower()] for each in self.attributes}
        return {
            **self._maintained(f"CS_{self.name}", self.shown.table.title),
            "concepts": [{"id": each, "name": text or each} for each, text in texts.items()],
        }

    def structure(self) -> dict[str, Any]:
        """What the observations consist of."""
        dimensions = [
            {
                **self._component(each.name),
                "localRepresentation": {
                    "enumeration": self._urn("codelist.Codelist", f"CL_{self.name}_{each.name}")
                },
            }
            for each in self.dimensions
        ]
        attributes = [
            {
                **self._component(each),
                "attributeRelationship": {"observation": {}},
                "measureRelationship": [OBSERVATION],
                "localRepresentation": _format("Boolean" if each == "MADE_UP" else "Double"),
            }
            for each in self.attributes
        ]
        kind = "Long" if self.shown.whole else "Double"
        measure = {
            **self._component(OBSERVATION),
            "usage": "mandatory",
            "localRepresentation": _format(kind),
        }
        return {
            **self._maintained(f"DSD_{self.name}", self.shown.table.title),
            "dataStructureComponents": {
                "dimensionList": {"dimensions": dimensions},
                "measureList": {"measures": [measure]},
                "attributeList": {"attributes": attributes},
            },
        }

    def flow(self) -> dict[str, Any]:
        return {
            **self._maintained(self.name, self.shown.table.title),
            "structure": self._urn("datastructure.DataStructure", f"DSD_{self.name}"),
        }

    def write(self, place: Path) -> None:
        """The observations."""
        data = self.shown.read()
        parts, rows = self.cubes.parts, data.num_rows
        columns: dict[str, Any] = {
            "STRUCTURE": ["dataflow"] * rows,
            "STRUCTURE_ID": [f"{self.agency}:{self.name}({SDMX_VERSION})"] * rows,
            "ACTION": ["I"] * rows,
        }
        for each in self.dimensions:
            if each.column is None:
                codes = [np.full(cube.rows, f"P{i}") for i, cube in enumerate(parts, 1)]
            else:
                codes = [cube.codes(each.column) for cube in parts]
            columns[each.name] = pa.array(np.concatenate(codes), type=pa.string())
        columns[OBSERVATION] = data["count"]
        for name in self.attributes:
            columns[name] = data[name.lower()]
        write_csv(pa.table(columns), place)

    def _maintained(self, name: str, title: str) -> dict[str, Any]:
        return {"agencyID": self.agency, "id": name, "name": title, "version": SDMX_VERSION}

    def _urn(self, kind: str, name: str) -> str:
        return f"{URN}{kind}={self.agency}:{name}({SDMX_VERSION})"

    def _component(self, name: str) -> dict[str, Any]:
        concept = self._urn("conceptscheme.Concept", f"CS_{self.name}")
        return {"id": name, "conceptIdentity": f"{concept}.{name}"}


def _format(kind: str) -> dict[str, Any]:
    return {"format": {"dataType": kind}}


def _message(publication: Publication, agency: str, flows: Sequence[_Flow]) -> dict[str, Any]:
    return {
        "meta": {
            "id": identifiers([publication.job.file.name])[0],
            "test": publication.files.simulation,
            "schema": SDMX_SCHEMA,
            "prepared": publication.time_text,
            "sender": {"id": agency},
        },
        "data": {
            "codelists": [flow.code_list(each) for flow in flows for each in flow.dimensions],
            "conceptSchemes": [flow.concepts() for flow in flows],
            "dataflows": [flow.flow() for flow in flows],
            "dataStructures": [flow.structure() for flow in flows],
        },
    }
