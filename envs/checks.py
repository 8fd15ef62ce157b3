"""Conformance kit: what `envs.base.Env` promises, checked on a real environment.

    check_env(lambda: AlfworldEnv(max_steps=20), games[:4])

A new environment passes it before anything else is built on it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from numbers import Real

import numpy as np

from envs.base import Env, EnvError, Observation, Outcome, Task
from envs.watched import DRAW, NonConforming, Watched, observation_of, other_global_state, outcome_of

__all__ = ["CHECKS", "Checker", "NonConforming", "check_env"]

STRANGE_ACTIONS = (
    "",
    " ",
    "\n\t\0",
    "no such command",
    "ünïcödé 🙂 \u202e",
    "{0} %s {x.__class__} #rule# [a|b]",
    "look " * 20_000,
)


@dataclass(frozen=True)
class Checker:
    """One environment under test.

    Attributes:
        make_env: Makes a fresh instance; all instances must be configured alike.
        seed: Seeds `reset` and the choice of actions.
        steps: Longest random walk.
        limit: More steps than any trajectory may take.
        choose: Picks an action; the default draws an admissible one, and "look" where none is listed.
        refused: Tells from an outcome whether the action was refused; None if an outcome does not show it.
    """

    make_env: Callable[[], Env]
    seed: int
    steps: int
    limit: int
    choose: Callable[[Observation, random.Random], str]
    refused: Callable[[Outcome], bool] | None

    def new(self) -> Env:
        """Makes an instance and watches it."""
        return Watched(self.make_env())

    def walk(self, env: Env, task: Task, salt: int = 0) -> tuple[list[str], list[Outcome]]:
        """Resets `env` and plays a random walk; returns the actions and their outcomes."""
        return self.walk_on(env, env.reset(task, self.seed), salt)

    def walk_on(self, env: Env, observation: Observation, salt: int) -> tuple[list[str], list[Outcome]]:
        """Plays a random walk from here."""
        rng = random.Random(f"{self.seed}/{salt}")
        actions: list[str] = []
        outcomes: list[Outcome] = []
        while len(actions) < self.steps and not (outcomes and outcomes[-1].done):
            actions.append(self.choose(observation, rng))
            outcomes.append(env.step(actions[-1]))
            observation = outcomes[-1].observation
        return actions, outcomes

    def replay(self, env: Env, task: Task, actions: Sequence[str]) -> list[Outcome]:
        """Resets `env` and plays `actions`."""
        env.reset(task, self.seed)
        return _play(env, actions)


def choose_admissible(observation: Observation, rng: random.Random) -> str:
    """Draws an admissible command, or "look" where none is listed."""
    return rng.choice(observation.admissible) if observation.admissible else "look"


def check_env(
    make_env: Callable[[], Env],
    tasks: Sequence[Task],
    seed: int = 0,
    *,
    steps: int = 30,
    limit: int = 1000,
    choose: Callable[[Observation, random.Random], str] = choose_admissible,
    refused: Callable[[Outcome], bool] | None = None,
) -> None:
    """Runs every check on every task. Arguments are those of `Checker`.

    Raises:
        NonConforming: the first broken promise.
    """
    if not tasks:
        raise ValueError("check_env: no tasks given.")
    first, second = make_env(), make_env()
    if first is second:
        raise NonConforming("make_env returns the same instance again: it must make a new one every time")
    first.close()
    second.close()
    checker = Checker(make_env, seed, steps, limit, choose, refused)
    for task in tasks:
        for check in CHECKS:
            try:
                check(checker, task)
            except NonConforming as error:
                raise NonConforming(f"{check.__name__} on task {task.id!r}: {error}") from error


def _demand(condition: bool, promise: str) -> None:
    if not condition:
        raise NonConforming(promise)


def _raises(call: Callable[[], object]) -> bool:
    try:
        call()
    except EnvError:
        return True
    return False


def _play(env: Env, actions: Sequence[str]) -> list[Outcome]:
    """Plays `actions`, as far as the trajectory goes."""
    outcomes: list[Outcome] = []
    for action in actions:
        outcomes.append(env.step(action))
        if outcomes[-1].done:
            break
    return outcomes


def _check_observation(observation: Observation) -> None:
    observation_of("reset", observation)
    for name in ("text", "anchor"):
        value = getattr(observation, name)
        _demand(isinstance(value, str), f"observation.{name} is a string, got a {type(value).__name__}")
    commands = observation.admissible
    listed = isinstance(commands, tuple) and all(isinstance(command, str) for command in commands)
    _demand(listed, f"observation.admissible is a tuple of strings, got {commands!r:.80}")
    _demand(len(set(commands)) == len(commands), f"no command is listed twice, got {commands!r:.80}")


def _check_outcome(outcome: Outcome) -> None:
    _check_observation(outcome_of(outcome).observation)
    _demand(not (outcome.terminated and outcome.truncated), "a step terminates or truncates, not both")
    _demand(not outcome.truncated or not outcome.success, "running out of steps is no success")
    _demand(
        outcome.terminated or not outcome.success,
        "a step that solves the task terminates: set terminated, or success only where the trajectory ends",
    )
    for name in ("score", "reward"):
        value = getattr(outcome, name)
        _demand(isinstance(value, Real), f"outcome.{name} is a number, got {value!r:.80}")
    _demand(0.0 <= outcome.score <= 1.0, f"score is in [0, 1], got {outcome.score}")
    _demand(bool(np.isfinite(outcome.reward)), f"reward is finite, got {outcome.reward}")


def _demand_same(found: Sequence[Outcome], expected: Sequence[Outcome], promise: str) -> None:
    """Demands that a replay repeats, and names the first step at which it does not."""
    for t, (one, other) in enumerate(zip(found, expected, strict=False)):
        for field in fields(Outcome):
            got, before = getattr(one, field.name), getattr(other, field.name)
            told = f"{promise}; at step {t} {field.name} was {before!r:.120}, then {got!r:.120}. {DRAW}"
            _demand(got == before, told)


def check_contract(checker: Checker, task: Task) -> None:
    """Types and ranges hold on a random walk, and the instruction is set."""
    env = checker.new()
    _check_observation(env.reset(task, checker.seed))
    told = isinstance(env.instruction, str) and bool(env.instruction)
    _demand(told, f"instruction holds the task sentence after reset, is {env.instruction!r:.80}")
    for outcome in checker.walk(env, task)[1]:
        _check_outcome(outcome)
    env.close()


def check_order(checker: Checker, task: Task) -> None:
    """Step before reset, step after the end and a foreign snapshot raise EnvError; close is idempotent."""
    env = checker.new()
    _demand(_raises(lambda: checker.make_env().step("look")), "step before reset raises EnvError")
    env.reset(task, checker.seed)
    _demand(_raises(lambda: env.restore(object())), "restore of a foreign value raises EnvError")
    outcome = env.step("no such command")
    for _ in range(checker.limit):
        if outcome.done:
            break
        outcome = env.step("no such command")
    _demand(outcome.done, f"a trajectory ends within {checker.limit} steps")
    _demand(outcome.truncated and not outcome.terminated, "nonsense to the end is truncated, not terminated")
    _demand(not outcome.success, "nonsense to the end is no success")
    _demand(_raises(lambda: env.step("look")), "step after the end raises EnvError")
    _check_observation(env.reset(task, checker.seed))
    env.close()
    env.close()


def check_determinism(checker: Checker, task: Task) -> None:
    """The same task, seed and actions give the same outcomes, whatever was played or drawn before."""
    first, second = checker.new(), checker.new()
    start = first.reset(task, checker.seed)
    actions, outcomes = checker.walk_on(first, start, 0)
    checker.walk(second, task, salt=1)
    again = second.reset(task, checker.seed)
    told = f"reset gives the same first observation; it was {start!r:.120}, then {again!r:.120}. {DRAW}"
    _demand(again == start, told)
    _demand_same(checker.replay(second, task, actions), outcomes, "a replay gives the same outcomes")
    _demand_same(checker.replay(first, task, actions), outcomes, "an instance can be reset and replayed")
    for seed in (1, 2):  # an environment may put back the global state that it draws from
        with other_global_state(seed):
            replayed = checker.replay(checker.new(), task, actions)
        _demand_same(replayed, outcomes, "a replay under another global random state gives the same outcomes")


def check_snapshot(checker: Checker, task: Task) -> None:
    """A snapshot is not changed by later steps, can be used often, and continues as the original did."""
    env = checker.new()
    start = env.reset(task, checker.seed)
    before = env.snapshot()
    actions, outcomes = checker.walk_on(env, start, 0)
    middle = len(actions) // 2
    for _ in range(2):
        _demand(env.restore(before) == start, "restore returns the observation that was current")
        _demand_same(_play(env, actions), outcomes, "a continuation from a snapshot repeats the original")
    env.restore(before)
    seen = _play(env, actions[:middle])
    inside = env.snapshot()
    current = seen[-1].observation if seen else start
    for salt in (2, 3):
        checker.walk_on(env, current, salt)
        _demand(env.restore(inside) == current, "restore returns the observation that was current")
    told = "branches taken from a snapshot leave it as it was: let no two share what a step changes"
    _demand(_play(env, actions[middle:]) == outcomes[middle:], told)
    env.restore(before)
    _demand(bool(env.instruction), "restore sets the instruction")


def check_isolation(checker: Checker, task: Task) -> None:
    """Two instances stepped in turn behave as each does alone."""
    one, two = checker.new(), checker.new()
    actions, alone = checker.walk(one, task)
    one.reset(task, checker.seed)
    observation, rng = two.reset(task, checker.seed), random.Random(checker.seed + 1)
    together, two_over = [], False
    for action in actions:
        together += _play(one, [action])
        if together[-1].done:
            break
        if not two_over:
            outcome = two.step(checker.choose(observation, rng))
            observation, two_over = outcome.observation, outcome.done
    told = "another instance changes nothing: keep what a step changes in the instance, not in its class"
    _demand(together == alone, told)


def check_strange_actions(checker: Checker, task: Task) -> None:
    """Any string is a legal action: it costs a step and never crashes."""
    env = checker.new()
    start = env.reset(task, checker.seed)
    snapshot = env.snapshot()
    for action in (*STRANGE_ACTIONS, *(f"  {command}  " for command in start.admissible[:2])):
        env.restore(snapshot)
        _check_outcome(env.step(action))


def check_admissible(checker: Checker, task: Task) -> None:
    """Every listed command is accepted; skipped where a refusal cannot be told from an outcome."""
    if checker.refused is None:
        return
    env = checker.new()
    observation, rng = env.reset(task, checker.seed), random.Random(checker.seed)
    for _ in range(min(checker.steps, 10)):
        snapshot = env.snapshot()
        for command in observation.admissible:
            _demand(not checker.refused(env.step(command)), f"the listed command {command!r} is accepted")
            env.restore(snapshot)
        outcome = env.step(checker.choose(observation, rng))
        observation = outcome.observation
        if outcome.done:
            return


CHECKS: tuple[Callable[[Checker, Task], None], ...] = (
    check_contract,
    check_order,
    check_determinism,
    check_snapshot,
    check_isolation,
    check_strange_actions,
    check_admissible,
)
