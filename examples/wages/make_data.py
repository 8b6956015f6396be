"""Write men_1978.csv: the control group of the Current Population Survey in causaldata."""

import warnings
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from causaldata import cps_mixtape

people = cps_mixtape.load_pandas().data
columns = ["re78", "marr", "nodegree"]
people[columns].to_csv(Path(__file__).with_name("men_1978.csv"), index=False)
