"""Methods as lists of stages: files, errors, services, per-token advantages, speed."""

import subprocess
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest

from configs.params import param
from credit.base import Reweighter
from credit.pipeline import COLUMNS, METRICS, Pipeline, load_method
from credit.registry import all_stages
from credit.signals import Context, Estimated, PerToken
from credit.stages.gigpo import GiGPO
from credit.stages.grpo import GRPO
from credit.stages.returns import Returns
from credit.table import StepTable

METHODS = sorted((Path(__file__).parents[2] / "configs" / "credit").glob("*.yaml"))


@pytest.mark.parametrize("path", METHODS, ids=[path.stem for path in METHODS])
def test_every_method_file_loads(path):
    method = Pipeline.from_yaml(path)
    assert method.name == path.stem
    comment = path.read_text(encoding="utf-8").split("name:")[0]
    assert "arXiv" in comment or "no paper" in comment.lower(), "say where it is from"


def test_there_are_method_files():
    assert {"grpo", "rloo", "gigpo", "scpo"} <= {path.stem for path in METHODS}


def test_scpo_file_is_the_documented_setting():
    path = next(path for path in METHODS if path.stem == "scpo")
    returns, scpo, gigpo = Pipeline.from_yaml(path).stages
    assert (returns.gamma, returns.invalid_penalty) == (0.95, 0.1)
    assert (scpo.theta, scpo.lam, scpo.alpha, gigpo.omega) == (0.6, 0.5, 0.5, 1.0)


def test_order_in_the_mapping_is_the_order_of_stages():
    method = Pipeline.from_config({"returns": None, "gigpo": {"omega": 0.5}}, "mine")
    assert method.stages == (Returns(), GiGPO(omega=0.5))
    assert method.name == "mine" and method.requires == frozenset()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"gigpoo": {}}, "no stage 'gigpoo'; did you mean 'gigpo'"),
        ({"gigpo": {"omga": 1}}, "credit.gigpo: no option 'omga'; did you mean 'omega'"),
        ({"gigpo": {"norm": "mean_sdt"}}, "credit.gigpo.norm: got 'mean_sdt'; did you mean 'mean_std'"),
        ({"gigpo": {"omega": -1}}, r"credit.gigpo.omega: got -1.0, expected within \[0, inf\]"),
        ({"gigpo": {"omega": "much"}}, "credit.gigpo.omega: got 'much', expected a number"),
        ({"gigpo": {"omega": float("nan")}}, "expected a finite number"),
        ({"gigpo": {"omega": True}}, "expected a number"),
        ({"gigpo": {"fp32_reference_compat": 1}}, "expected bool"),
        ({"gigpo": {"fp32_reference_compat": True}}, "no unit 'trajectories'; set unit to rows"),
        ({"returns": {}}, "expected any filters and shapers, then exactly one estimator"),
        ({}, "got nothing"),
        ({"grpo": {}, "rloo": {}}, "got grpo → rloo; expected"),
        ({"gigpo": {}, "returns": {}}, "got gigpo → returns; expected"),
        ({"returns": {}, "scpo": {}, "grpo": {}}, "scpo changes returns, which grpo does not look at"),
    ],
)
def test_errors_say_what_to_do(config, message):
    with pytest.raises(ValueError, match=message):
        Pipeline.from_config(config)


def test_numbers_that_yaml_reads_as_text_are_numbers(tmp_path):
    file = tmp_path / "m.yaml"
    file.write_text("name: m\nstages:\n  grpo: {eps: 3e-6}\n")
    assert Pipeline.from_yaml(file).stages == (GRPO(eps=3e-6),)


@pytest.mark.parametrize("text", ["", "stages: [grpo]", "name: x"])
def test_a_file_without_stages_is_refused(tmp_path, text):
    file = tmp_path / "m.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match="expected `name:` and `stages:`"):
        load_method(file)


def test_an_unknown_key_in_a_file_is_refused(tmp_path):
    file = tmp_path / "m.yaml"
    file.write_text("name: m\nstage: {}\nstages: {grpo: {}}\n")
    with pytest.raises(ValueError, match="no key 'stage'; did you mean 'stages'"):
        load_method(file)


def test_services_are_checked_at_start_up():
    method = Pipeline.from_config({"returns": {}, "scpo": {}, "gigpo": {}})
    assert method.requires == {"pair_scorer"}
    with pytest.raises(ValueError, match="credit.scpo needs the service 'pair_scorer', got none"):
        method.check_services({})
    method.check_services({"pair_scorer": object()})


def test_an_estimator_that_needs_returns_says_so():
    with pytest.raises(ValueError, match="credit.gigpo: some rows have no return"):
        Pipeline.from_config({"gigpo": {}}).run(table_of(2, 2))


def test_returns_may_come_with_the_table():
    table = StepTable(
        group=[0, 0],
        trajectory=[0, 1],
        t=[0, 0],
        reward=[0, 0],
        outcome=[0, 0],
        success=[0, 0],
        anchor=["a", "a"],
        return_to_go=[3.0, 1.0],
    )
    assert Pipeline.from_config({"gigpo": {"norm": "mean"}}).run(table).advantage.tolist() == [1.0, -1.0]


def table_of(trajectories, steps, **extra):
    """Groups of 8, half of them successes, 60 anchors."""
    rng = np.random.default_rng(0)
    k = np.repeat(np.arange(trajectories), steps)
    t = np.tile(np.arange(steps), trajectories)
    success = rng.random(trajectories) < 0.5
    places = [
        f"You arrive at shelf {i}. On the shelf {i}, you see a cup {i}, and a bowl 1." for i in range(60)
    ]
    return StepTable(
        group=k // 8,
        trajectory=k,
        t=t,
        reward=10.0 * (success[k] & (t == steps - 1)),
        outcome=10.0 * success[k],
        success=success[k],
        anchor=[places[i] for i in rng.integers(0, 60, len(k))],
        **extra,
    )


@dataclass(frozen=True)
class ByToken(Reweighter):
    """Multiplies each token's share of the advantage by its entropy."""

    scale: float = param(1.0, "factor", low=0)

    def reweight(self, table, signals, context):
        row = np.repeat(np.arange(len(table)), table.length)
        return Estimated(PerToken(self.scale * signals.advantage[row] * table.tokens["entropy"]))


def test_a_reweighter_may_speak_per_token():
    table = StepTable(
        group=[0, 0, 0],
        trajectory=[1, 1, 0],
        t=[1, 0, 0],
        reward=[10.0, 0.0, 0.0],
        outcome=[10.0, 10.0, 0.0],
        success=[1, 1, 0],
        anchor=["a", "b", "c"],
        length=[2, 1, 3],
        tokens={"entropy": [1.0, 3.0, 5.0, 1.0, 2.0, 3.0]},
        padding=[False, False, False],
    )
    result = Pipeline((GRPO(norm="mean"), ByToken(scale=2.0))).run(table)
    assert result.token_advantage.tolist() == [10.0, 30.0, 50.0, -10.0, -20.0, -30.0]
    assert result.advantage.tolist() == [20.0, 50.0, -20.0]


def test_a_reweighter_of_a_wrong_shape_is_refused():
    @dataclass(frozen=True)
    class Short(Reweighter):
        def reweight(self, table, signals, context):
            return Estimated(signals.advantage[:1])

    with pytest.raises(ValueError, match=r"advantage of shape \(1,\), expected \(4,\)"):
        Pipeline((GRPO(), Short())).run(table_of(2, 2))


def test_draws_are_named_by_purpose():
    context = Context(seed=1, step=2)
    assert context.rng("a").random() == context.rng("a").random() != context.rng("b").random()
    assert context.rng("a").random() != Context(seed=1, step=3).rng("a").random()


def test_everything_is_documented():
    for name, stage in all_stages().items():
        assert stage.__doc__ and len(stage.__doc__) > 40, name
        assert all(field.metadata["doc"] for field in fields(stage)), name
    assert all(METRICS.values()) and all(COLUMNS.values())


def test_credit_imports_neither_torch_nor_its_neighbours():
    code = (
        "import sys, credit.pipeline, credit.golden.parity, credit.scorer.lexical\n"
        "heavy = {'torch', 'transformers', 'vllm', 'ray', 'rl', 'envs', 'agent'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_gigpo_takes_at_most_a_second_for_8192_trajectories_of_30_steps():
    table = table_of(8192, 30)
    method = Pipeline.from_config({"returns": {}, "gigpo": {}})
    best = np.inf
    for _ in range(3):
        start = time.process_time()
        method.run(table)
        best = min(best, time.process_time() - start)
    assert best < 1.0
