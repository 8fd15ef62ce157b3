"""Every method's file one update behind: what it compares are log-probabilities of the same weights."""

from pathlib import Path

import numpy as np
import pytest

import rl.probes.probes
from credit.pipeline import Pipeline, load_method
from rl.learner.forward import measure_rows
from rl.probes.probes import ProbeOptions, token_columns
from rl.rows.assemble import token_rows
from tests.rl.helpers import toy_run

FILES = sorted((Path(__file__).parents[3] / "configs" / "credit").glob("*.yaml"))
READERS = {
    path.stem: load_method(path)["stages"]
    for path in FILES
    if Pipeline.from_config(load_method(path)["stages"]).token_columns
}
"""The stages of each method that reads log-probabilities or entropies of the responses."""


def test_the_table_holds_the_methods_with_a_teacher():
    assert {"opsd", "sdar", "rlsd", "stepopsd", "agentopsd", "hcapo", "sharpo"} <= set(READERS)


@pytest.mark.parametrize("method", READERS)
def test_one_update_ahead_the_learner_of_now_says_what_the_method_reads(method, tmp_path, monkeypatch):
    """A run whose second update was sampled by the weights before the first."""
    moved, compared = [], []

    def checked(names, groups, **given):
        columns, metrics = token_columns(names, groups, **given)
        rows = token_rows(groups, mask_truncated=False)
        now = measure_rows(given["module"], rows, temperature=given["temperature"], token_budget=4096)
        recorded = np.concatenate([row.logp_sampled for row in rows])
        truth = {"logp_sampled": [logp for logp, _ in now], "entropy": [entropy for _, entropy in now]}
        moved.append(np.abs(np.concatenate(truth["logp_sampled"]) - recorded).max())
        for name in set(names) & set(truth):
            np.testing.assert_allclose(columns[name], np.concatenate(truth[name]), atol=2e-5)
            compared.append(name)
        return columns, metrics

    monkeypatch.setattr(rl.probes.probes, "token_columns", checked)
    toy_run(
        tmp_path,
        updates=2,
        staleness=1,
        lr=5e-3,
        groups=3,
        group_size=4,
        credit=tuple(READERS[method]),
        probing=ProbeOptions(token_budget=4096),
    )
    assert moved[0] < 1e-4 and moved[1] > 5e-3, "the weights must have moved for this test to say anything"
    assert len(compared) >= 2
