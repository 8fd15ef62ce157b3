"""Credit assignment for group rollouts: which step of which trajectory earned what.

A *method* is a short ordered list of *stages* (one file each in `credit/stages/`), run by a `Pipeline` over
one `StepTable`. It works without the rest of the project:

    table = StepTable(group=…, trajectory=…, t=…, reward=…, outcome=…, success=…, anchor=…)
    scpo = Pipeline.from_yaml("configs/credit/scpo.yaml")
    scpo.run(table, {"pair_scorer": make_scorer("lexical")}).advantage  # float [N], in the table's row order

Pure numpy: no torch, no global random state. The project's own files import from where a name is defined.
"""

from configs.params import param
from credit.base import AuxLoss, Estimator, Filter, Reweighter, Shaper, Stage, Steer
from credit.pipeline import COLUMNS, METRICS, CreditResult, Pipeline, load_method
from credit.registry import all_stages, build_stage
from credit.scorer import PairScorer, around_model, make_scorer, scorer_names
from credit.signals import Context, Estimated, PerToken, Shaped, Signals, Weighted, require_returns
from credit.table import TERMINAL, StepTable

__all__ = [
    "COLUMNS",
    "METRICS",
    "TERMINAL",
    "AuxLoss",
    "Context",
    "CreditResult",
    "Estimated",
    "Estimator",
    "Filter",
    "PairScorer",
    "PerToken",
    "Pipeline",
    "Reweighter",
    "Shaped",
    "Shaper",
    "Signals",
    "Stage",
    "Steer",
    "StepTable",
    "Weighted",
    "all_stages",
    "around_model",
    "build_stage",
    "load_method",
    "make_scorer",
    "param",
    "require_returns",
    "scorer_names",
]
