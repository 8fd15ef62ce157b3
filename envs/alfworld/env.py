"""ALFWorld as an `Env`: one trajectory of one game at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envs.alfworld.engine import NOTHING_HAPPENS, CompiledGame, State, compile_game
from envs.alfworld.game import Game
from envs.base import Env, EnvError, Observation, Outcome, Task

ANCHORS = ("state", "text")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a trajectory is made of at one moment; valid in any `AlfworldEnv`, and pickles."""

    game: Game
    compiled: CompiledGame
    state: State
    observation: Observation
    scene: str
    steps: int
    over: bool

    def __reduce__(self) -> tuple:
        # Compiled code does not travel between processes; the other side compiles the game again.
        return _snapshot, (self.game, self.state, self.observation, self.scene, self.steps, self.over)


def _snapshot(game: Game, *moment: Any) -> Snapshot:
    return Snapshot(game, compile_game(game), *moment)


class AlfworldEnv(Env):
    """Plays ALFWorld games on the compiled engine. Deterministic; the seed of `reset` changes nothing.

    Args:
        max_steps: Steps after which a trajectory is truncated. Refused commands count.
        anchor: What `Observation.anchor` holds. "text" is the raw observation, as published step-level credit
            methods use it. "state" is the last informative observation, the place, and the held object
            with its condition: "Nothing happens." in three places gives three anchors, and a refused command
            leaves the anchor as it was, because the situation is the same.
        reward: Reward of the winning step; every other step has 0.

    Raises:
        EnvError: an option is out of range.
    """

    def __init__(self, max_steps: int = 50, anchor: str = "state", reward: float = 1.0) -> None:
        if max_steps < 1:
            raise EnvError(f"AlfworldEnv: max_steps must be at least 1, got {max_steps}.")
        if anchor not in ANCHORS:
            raise EnvError(f"AlfworldEnv: anchor must be one of {', '.join(ANCHORS)}, got {anchor!r}.")
        self.max_steps = max_steps
        self.anchor = anchor
        self.reward = reward
        self._now: Snapshot | None = None

    def reset(self, task: Task, seed: int = 0) -> Observation:
        """Starts a game.

        Raises:
            EnvError: `task` is not a `Game`, or its texts cannot be compiled (the message names the game).
        """
        if not isinstance(task, Game):
            raise EnvError(f"AlfworldEnv plays envs.alfworld.Game tasks, got {type(task).__name__}.")
        compiled = compile_game(task)
        observation = self._observe(compiled, compiled.initial, compiled.intro, compiled.intro)
        self._now = Snapshot(task, compiled, compiled.initial, observation, compiled.intro, 0, False)
        self.instruction = task.goal
        return observation

    def step(self, action: str) -> Outcome:
        """Plays one command; see `Env.step`."""
        now = self._now
        if now is None:
            raise EnvError("AlfworldEnv: step before reset. Call reset(task) first.")
        if now.over:
            raise EnvError(f"AlfworldEnv: the trajectory of {now.game.id!r} is over. Call reset or restore.")
        if not isinstance(action, str):
            raise EnvError(f"AlfworldEnv: an action is a string, got {type(action).__name__}.")
        state, text = now.compiled.step(now.state, action)
        won, steps = now.compiled.won(state), now.steps + 1
        truncated = not won and steps >= self.max_steps
        scene = now.scene if text == NOTHING_HAPPENS else text
        observation = self._observe(now.compiled, state, text, scene)
        self._now = Snapshot(now.game, now.compiled, state, observation, scene, steps, won or truncated)
        return Outcome(
            observation=observation,
            reward=self.reward if won else 0.0,
            terminated=won,
            truncated=truncated,
            success=won,
            score=1.0 if won else 0.0,
        )

    def snapshot(self) -> Snapshot:
        """Returns the present moment; costs nothing, since states are immutable."""
        if self._now is None:
            raise EnvError("AlfworldEnv: snapshot before reset. Call reset(task) first.")
        return self._now

    def restore(self, snapshot: Snapshot) -> Observation:
        """Goes back to a snapshot of this or another instance."""
        if not isinstance(snapshot, Snapshot):
            raise EnvError(f"AlfworldEnv: expected a value of snapshot(), got {type(snapshot).__name__}.")
        self._now = snapshot
        self.instruction = snapshot.game.goal
        return snapshot.observation

    def close(self) -> None:
        """Lets go of the game; idempotent. A later `reset` opens the instance again."""
        self._now = None

    def _observe(self, compiled: CompiledGame, state: State, text: str, scene: str) -> Observation:
        anchor = text if self.anchor == "text" else f"{scene}\n{compiled.situation(state)}"
        return Observation(text, anchor, compiled.admissible(state))
