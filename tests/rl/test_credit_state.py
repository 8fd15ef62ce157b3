"""What a credit stage keeps from update to update survives a kill and a resume, and is used again."""

import pytest
import torch

from rl.checkpoint import STATE_FILE
from tests.rl.helpers import toy_run

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

OPTIONS = dict(
    groups=2,
    group_size=3,
    credit=("returns", "sso", "gigpo"),
    config={"train": {"lr_schedule": "constant"}},
    checkpoint_every=1,
)


def saved(run_dir, update):
    path = run_dir / "checkpoints" / f"{update:04d}" / STATE_FILE
    return torch.load(path, weights_only=True)["credit"]


def test_counts_of_two_and_two_updates_are_those_of_four(tmp_path):
    whole, state = toy_run(tmp_path / "whole", updates=4, **OPTIONS)
    killed = tmp_path / "killed"
    toy_run(killed, updates=2, **OPTIONS)
    assert saved(killed, 2)["sso"]["t"] == 1 + 2 * 2 * 3
    resumed, again = toy_run(killed, updates=4, resume=True, **OPTIONS)
    assert again.credit == state.credit == saved(killed, 4) == saved(tmp_path / "whole", 4)
    assert again.credit["sso"]["t"] == 1 + 4 * 2 * 3
    assert sum(n for n, _ in again.credit["sso"]["counts"].values()) >= 4 * 2 * 3
    for (name, expected), (_, got) in zip(whole.named_weights(), resumed.named_weights(), strict=True):
        assert torch.equal(expected, got), name
