"""Run folders for tests of the report, written by the project's own tracker, store and credit pipeline."""

from __future__ import annotations

import io
import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console, RenderableType

from agent.policy import Sampling
from agent.prompts.builder import PromptBuilder, load_template
from agent.prompts.turns import TurnFormat
from agent.rollout.rollout import rollout
from agent.types import Group
from configs.load import load, write_config
from credit.pipeline import Pipeline
from credit.scorer import make_scorer
from eval.result import EvalResult, TaskResult, save_eval
from rl.rows.assemble import step_table
from rl.tracking.metrics import rollout_metrics
from rl.tracking.tracker import Tracker
from rl.tracking.trajectory_store import TrajectoryStore
from tests.toy import ScriptedPolicy, ToyEnv, scripted_expert, toy_tasks, toy_tokenizer


def result(
    successes: Sequence[int], families: int = 1, version: int = 0, scores: Sequence[float] | None = None
) -> EvalResult:
    """An evaluation of tasks 0..n-1, solved where `successes` says 1, families dealt in turn."""
    tasks = [
        TaskResult(f"task-{i:04d}", f"family-{i % families}", bool(s), score, not s, 10, 10, 9, 9, 70)
        for i, (s, score) in enumerate(zip(successes, scores or map(float, successes), strict=True))
    ]
    return EvalResult(tuple(tasks), seed=0, temperature=0.4, policy_version=version, seconds=2.0)


def attempted(counts: Sequence[tuple[int, int]], families: int = 1) -> EvalResult:
    """An evaluation of tasks with (successes, attempts), the successes first, families dealt in turn."""
    tasks = [
        TaskResult(f"task-{i:04d}", f"family-{i % families}", won, float(won), not won, 10, 10, 9, 9, 70, a)
        for i, (c, n) in enumerate(counts)
        for a, won in enumerate([True] * c + [False] * (n - c))
    ]
    return EvalResult(tuple(tasks), seed=0, temperature=0.4, policy_version=0, seconds=2.0)


def printed(shown: RenderableType) -> str:
    """What a terminal of 120 characters shows."""
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(shown)
    return console.export_text()


def prompts(window: int = 1024) -> PromptBuilder:
    """The toy's prompts, append-only."""
    return PromptBuilder(
        turns=TurnFormat(toy_tokenizer()),
        form="append",
        template=load_template("alfworld_bare"),
        history=2,
        window=window,
        max_response_tokens=32,
    )


def toy_groups(update: int, *, groups: int = 4, group_size: int = 4, error: float = 0.6) -> list[Group]:
    """Plays toy tasks with an expert that errs."""
    return rollout(
        ScriptedPolicy(toy_tokenizer(), scripted_expert(error)),
        Sampling(1.0),
        lambda: ToyEnv(max_steps=6),
        toy_tasks(groups, seed=update),
        group_size=group_size,
        prompts=prompts(),
        max_parallel=64,
        seed=update,
        numbers=range((update - 1) * groups, update * groups),
    )


class RunWriter:
    """Writes a run folder piece by piece, as a run would."""

    def __init__(self, path: Path, method: str = "scpo", overrides: Sequence[str] = ()) -> None:
        """Creates `path` with its config.json."""
        path.mkdir(parents=True)
        self.path = path
        self.loaded = load("alfworld_cpu", [f"credit={method}", *overrides])
        write_config(self.loaded.config, path / "config.json")
        (path / "sources.json").write_text(json.dumps(dict(self.loaded.sources)))
        credit = self.loaded.config.credit
        self._pipeline = Pipeline.from_config(credit.stages, credit.name)
        self._tracker = Tracker(path)
        self._store = TrajectoryStore(path / "trajectories")

    def evaluate(self, update: int, evaluation: EvalResult) -> None:
        """Records an evaluation; the first one also opens the metrics, as in a run."""
        save_eval(self.path, update, evaluation)
        if update == 0:
            self._tracker.log(0, evaluation.metrics())

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Logs metrics by themselves."""
        self._tracker.log(update, metrics)

    def update(self, number: int, groups: Sequence[Group]) -> None:
        """Credits `groups`, stores them and logs the metrics of an update."""
        table = step_table(groups)
        credit = self._pipeline.run(table, {"pair_scorer": make_scorer("lexical")}, step=number)
        self._store.write(number, groups, table, credit)
        self._tracker.log(number, {**rollout_metrics(groups), **credit.metrics, **trained(number)})


def trained(update: int) -> dict[str, float]:
    """Metrics of a learner that behaves well."""
    rng = random.Random(update)
    return {
        "train/loss": 0.02 * rng.gauss(0, 1),
        "train/kl_ref": 0.002 * update * (1 + 0.1 * rng.gauss(0, 1)),
        "train/kl_sampled": 0.001 + 0.0002 * rng.random(),
        "train/entropy": 0.4 * math.exp(-update / 40) + 0.02 * rng.random(),
        "train/clip_fraction": 0.01 + 0.01 * rng.random(),
        "train/grad_norm": 0.5 + 0.2 * rng.random(),
        "time/rollout": 6.0 + rng.random(),
        "time/credit": 0.3,
        "time/learner": 9.0 + rng.random(),
        "time/sync": 0.1,
        "time/update": 16.0,
        "speed/rollout_tokens_per_s": 2300 + 200 * rng.random(),
        "speed/train_tokens_per_s": 5000 + 300 * rng.random(),
    }
