"""MST and AIM at their defaults on Adult, in an environment of their own.

    pip install smartnoise-synth && python benchmarks/synthetic_rivals.py FOLDER mst 3

FOLDER holds adult.csv, of whole numbers, and adult-domain.json, attribute: number of values. Needs
no psephos: smartnoise-synth wants other versions of much. Values that do not occur in the data are
not known to it, which helps it a little. Prints for each run the mean over all tables of two and of
three attributes of ‖true - synthetic‖₁/N, and the CPU seconds.
"""

import json
import sys
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from snsynth import Synthesizer


def tables(records, shape, axes):
    """The shares of all combinations of values."""
    place = np.zeros(len(records), dtype=np.int64)
    for axis in axes:
        place = place * shape[axis] + records[:, axis]
    cells = int(np.prod([shape[axis] for axis in axes]))
    return np.bincount(place, minlength=cells) / len(records)


def error(true, synthetic, shape, k):
    """The mean of ‖true - synthetic‖₁/N over all tables of k attributes."""
    sets = combinations(range(len(shape)), k)
    gaps = [np.abs(tables(true, shape, s) - tables(synthetic, shape, s)).sum() for s in sets]
    return float(np.mean(gaps))


def main(folder, name, runs):
    shape = list(json.loads((folder / "adult-domain.json").read_text()).values())
    data = pd.read_csv(folder / "adult.csv")
    for run in range(runs):
        before = time.process_time()
        synthesizer = Synthesizer.create(name, epsilon=1.0, delta=1e-9)
        columns = list(data.columns)
        sample = synthesizer.fit_sample(data, categorical_columns=columns, preprocessor_eps=0.0)
        seconds = time.process_time() - before
        rows = sample[columns].astype(int).to_numpy()
        two, three = (error(data.to_numpy(), rows, shape, k) for k in (2, 3))
        errors = f"two-way {two:.4f}, three-way {three:.4f}"
        print(f"{name} run {run + 1}: {errors}, {seconds:.0f} CPU s", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
