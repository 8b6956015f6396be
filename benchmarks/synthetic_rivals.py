"""MST and AIM at their defaults on Adult, in an environment of their own.

    pip install smartnoise-synth && python benchmarks/synthetic_rivals.py FOLDER mst 3

FOLDER holds adult.csv, of whole numbers, and adult-domain.json, attribute: number of values. Needs
no psephos: smartnoise-synth wants other versions of much. Values that do not occur in the data are
not known to it, which helps it a little. Prints for each run the mean over all tables of two and of
three attributes of ‖true - estimate‖₁/N, for the rows it makes and for the model that they are made
from, and the CPU seconds without those of the comparison.
"""

import inspect
import json
import sys
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from snsynth import Synthesizer


def shares(records, shape, axes):
    """The shares of all combinations of values."""
    sizes = [shape[axis] for axis in axes]
    cells = np.ravel_multi_index(tuple(records[:, axes].T), sizes)
    return np.bincount(cells, minlength=int(np.prod(sizes))).reshape(sizes) / len(records)


def model_tables(synthesizer, data, shape):
    """The tables of its graphical model, on all values."""
    model, undo = synthesizer.synthesizer, getattr(synthesizer, "undo_compress_fn", None)
    supports = {} if undo is None else inspect.getclosurevars(undo).nonlocals["supports"]
    spreads = {}
    for axis, column in enumerate(data.columns):
        name = f"col{axis}"
        values = np.sort(data[column].unique())
        support = supports.get(name, np.ones(values.size, dtype=bool))
        spread = np.zeros((shape[axis], int(support.sum()) + int(not support.all())))
        spread[values[support], np.arange(int(support.sum()))] = 1
        if not support.all():  # rare values were made one, which is spread evenly
            spread[values[~support], -1] = 1 / (~support).sum()
        spreads[axis] = spread

    def tables(axes):
        names = tuple(f"col{axis}" for axis in axes)
        factor = model.project(names)
        table = np.asarray(factor.transpose(names).values, dtype=float)
        for place, axis in enumerate(axes):
            table = np.moveaxis(np.tensordot(spreads[axis], table, (1, place)), 0, place)
        return table / table.sum()

    return tables


def error(true, tables, shape, k):
    """The mean of ‖true - estimate‖₁/N over all tables of k attributes."""
    sets = [list(axes) for axes in combinations(range(len(shape)), k)]
    return float(np.mean([np.abs(shares(true, shape, s) - tables(s)).sum() for s in sets]))


def main(folder, name, runs):
    shape = list(json.loads((folder / "adult-domain.json").read_text()).values())
    data = pd.read_csv(folder / "adult.csv")
    true = data.to_numpy()
    for run in range(runs):
        before = time.process_time()
        synthesizer = Synthesizer.create(name, epsilon=1.0, delta=1e-9)
        columns = list(data.columns)
        sample = synthesizer.fit_sample(data, categorical_columns=columns, preprocessor_eps=0.0)
        seconds = time.process_time() - before
        rows = sample[columns].astype(int).to_numpy()
        model = model_tables(synthesizer, data, shape)
        kinds = {"rows": lambda axes, rows=rows: shares(rows, shape, axes), "model": model}
        for kind, tables in kinds.items():
            two, three = (error(true, tables, shape, k) for k in (2, 3))
            errors = f"two-way {two:.4f}, three-way {three:.4f}"
            print(f"{name} run {run + 1}, {kind}: {errors}, {seconds:.0f} CPU s", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
