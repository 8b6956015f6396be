"""MST and AIM at their defaults on Adult, in an environment of their own.

    pip install dpmm && python benchmarks/synthetic_rivals.py FOLDER dpmm mst 3
    pip install dpmm && python benchmarks/synthetic_rivals.py FOLDER dpmm aim 1
    pip install smartnoise-synth && python benchmarks/synthetic_rivals.py FOLDER smartnoise mst 3

FOLDER holds adult.csv, of whole numbers, and adult-domain.json, attribute: number of values. Needs
no psephos: both packages want other versions of much. Prints for each run the mean over all tables
of two and of three attributes of ‖true - estimate‖₁/N for the rows that are made, and the CPU
seconds without those of the comparison. AIM may take hours, so how far it has come goes to stderr
after every fit.

smartnoise-synth learns its values from the data, which helps it a little. It makes rows by mbi,
whose version 1.1 fills in attributes in the order of rows: two attributes that depend on the same
third one then go up together. `smartnoise-drawn` draws rows independently from the same model.
"""

import json
import sys
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

EPSILON, DELTA = 1.0, 1e-9


def shares(records, shape, axes):
    """The shares of all combinations of values."""
    sizes = [shape[axis] for axis in axes]
    cells = np.ravel_multi_index(tuple(records[:, axes].T), sizes)
    return np.bincount(cells, minlength=int(np.prod(sizes))).reshape(sizes) / len(records)


def error(true, rows, shape, k):
    """The mean of ‖true - estimate‖₁/N over all tables of k attributes."""
    sets = [list(axes) for axes in combinations(range(len(shape)), k)]
    return float(np.mean([np.abs(shares(true, shape, s) - shares(rows, shape, s)).sum()
                          for s in sets]))  # fmt: skip


def by_dpmm(name, data, shape, run):
    """Rows of dpmm's models, on codes as they are: nothing is binned."""
    from dpmm.models.aim import AIMGM
    from dpmm.models.mst import MSTGM

    domain = dict(zip(data.columns, map(int, shape), strict=True))
    kind = {"mst": MSTGM, "aim": AIMGM}[name]
    model = kind(epsilon=EPSILON, delta=DELTA, domain=domain, n_jobs=1)
    if name == "aim":
        tell_progress(model)
    model.set_domain(domain)
    model.set_random_state(np.random.RandomState(run))
    model.fit(data)
    return model.generate(n_records=len(data))


def tell_progress(model):
    """After every fit of AIM: how many tables it has measured, and what share of the budget."""
    from dpmm.models import aim

    fit = aim.FactoredInference.estimate

    def told_fit(engine, measurements):
        fitted = fit(engine, measurements)
        spent = sum(0.5 / sigma**2 for _, _, sigma, _ in measurements) / (0.9 * model.generator.rho)
        words = f"{len(measurements)} tables, {spent:.1%} of what measuring may spend"
        print(f"{words}, {time.process_time():.0f} CPU s", file=sys.stderr, flush=True)
        return fitted

    aim.FactoredInference.estimate = told_fit


def by_smartnoise(name, data, shape, run, method="round"):
    """Rows of smartnoise-synth's synthesizers."""
    from snsynth import Synthesizer

    synthesizer = Synthesizer.create(name, epsilon=EPSILON, delta=DELTA)
    synthesizer.fit(data, categorical_columns=list(data.columns), preprocessor_eps=0.0)
    if method != "round":
        model = synthesizer.synthesizer
        rounded = model.synthetic_data
        object.__setattr__(model, "synthetic_data", lambda rows: rounded(rows, method))
    return synthesizer.sample(len(data))


PACKAGES = {
    "dpmm": by_dpmm,
    "smartnoise": by_smartnoise,
    "smartnoise-drawn": lambda *words: by_smartnoise(*words, method="sample"),
}


def main(folder, package, name, runs):
    shape = list(json.loads((folder / "adult-domain.json").read_text()).values())
    data = pd.read_csv(folder / "adult.csv")
    true = data.to_numpy()
    for run in range(runs):
        before = time.process_time()
        rows = PACKAGES[package](name, data, shape, run)
        seconds = time.process_time() - before
        records = rows[list(data.columns)].astype(int).to_numpy()
        two, three = (error(true, records, shape, k) for k in (2, 3))
        errors = f"two-way {two:.4f}, three-way {three:.4f}"
        print(f"{package} {name} run {run + 1}: {errors}, {seconds:.0f} CPU s", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
