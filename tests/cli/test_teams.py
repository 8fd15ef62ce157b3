"""What `generator.tensor_parallel` is refused with, before anything heavy starts."""

import pytest

from commands.build.declared import credit_pipeline
from commands.build.teams import check_team, check_team_credit, in_team
from commands.serve_policy import run as serve
from configs.load import load
from configs.text import ConfigError
from tests.toy import tiny_model

SPLIT = ("generator.tensor_parallel=2", "generator.backend=vllm", "train.engine=deepspeed")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ("generator.backend=torch", "needs generator.backend=vllm, got torch"),
        ("train.engine=torch", "needs train.engine=deepspeed, got torch"),
        ("rollout.staleness=1", "needs rollout.staleness=0, got 1"),
    ],
)
def test_other_options_that_cannot_go_with_it_are_named(other, named):
    with pytest.raises(ConfigError, match=named):
        load("alfworld_cpu", [*SPLIT, other])
    load("alfworld_cpu", [other])


@pytest.mark.parametrize(
    ("size", "world", "local", "named"),
    [
        (2, 3, 3, r"must divide the number of processes \(3\)"),
        (2, 1, 1, r"must divide the number of processes \(1\): start the run with --nproc"),
        (2, 6, 3, r"must divide the processes of each machine \(3\)"),
        (3, 6, 6, r"must divide the model's attention heads \(4\)"),
        (4, 4, 4, r"must divide the model's key-value heads \(2\)"),
        (2, 4, 4, None),
        (1, 3, 3, None),
    ],
)
def test_what_cannot_be_divided_is_named(size, world, local, named, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", str(world))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local))
    config = load("alfworld_cpu", [*SPLIT, f"generator.tensor_parallel={size}"]).config
    model = tiny_model(50)
    if named is None:
        check_team(config, model)
        return
    with pytest.raises(ConfigError, match=named):
        check_team(config, model)


def test_credit_of_continuations_is_refused_and_other_credit_is_not():
    for method, refused in (("prover", True), ("gigpo", False)):
        loaded = load("alfworld_cpu", [*SPLIT, f"credit={method}"])
        pipeline = credit_pipeline(loaded)
        if not refused:
            check_team_credit(loaded.config, pipeline)
            continue
        with pytest.raises(ConfigError, match="plays continuations on the first process alone"):
            check_team_credit(loaded.config, pipeline)
        one = load("alfworld_cpu", [f"credit={method}"])
        check_team_credit(one.config, credit_pipeline(one))


def test_a_policy_server_refuses_it():
    with pytest.raises(ConfigError, match="a policy server is one process with one card"):
        serve("alfworld_cpu", SPLIT, address=None, limits=None, token_file=None, drain_seconds=0.0)


def test_a_team_of_one_is_no_team():
    policy = object()
    assert in_team(load("alfworld_cpu", []).config, policy) is policy
