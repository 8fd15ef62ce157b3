"""Our environments with Gymnasium's interface, for agents and tools that expect it.

env = ToGymnasium(AlfworldEnv(max_steps=30), games)
text, info = env.reset(seed=0)
text, reward, terminated, truncated, info = env.step(info["admissible"][0])
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any, Literal

import gymnasium
from gymnasium.spaces import Text

from envs.base import Env, EnvError, Observation, Task


class AnyText(Text):
    """Any string up to a length. `Text` has to list its characters; this list is used for sampling only."""

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, min_length=0, charset=string.printable)

    def contains(self, x: Any) -> bool:
        """Whether `x` is a string, and not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    def __repr__(self) -> str:
        return f"AnyText({self.max_length})"


class ToGymnasium(gymnasium.Env[str, str]):
    """One of our environments with Gymnasium's interface.

    Actions are commands. `reset` draws a task, or takes `options={"task": ID}`. The information that comes
    with an observation: `admissible`, `anchor`, `instruction`, `task`, `family`, `success` and `score`.

    Args:
        env: The environment; this object owns it from now on.
        tasks: Tasks to draw from.
        render_mode: `ansi`: `render` returns the current observation.
        max_length: Characters that the observation space allows, and (a hundredth) a sampled action has.

    Raises:
        EnvError: No tasks, two with one id, or an unknown render mode.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(
        self,
        env: Env,
        tasks: Sequence[Task],
        render_mode: Literal["ansi"] | None = None,
        max_length: int = 100_000,
    ) -> None:
        self._tasks = {task.id: task for task in tasks}
        if not tasks or len(self._tasks) < len(tasks):
            raise EnvError(
                f"ToGymnasium: {len(tasks)} tasks with {len(self._tasks)} different ids; give at least one "
                "task, and each once."
            )
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise EnvError(f"ToGymnasium: render_mode must be None or 'ansi', got {render_mode!r}.")
        self.env, self.render_mode = env, render_mode
        self.observation_space = AnyText(max_length)
        self.action_space = AnyText(max(1, max_length // 100))
        self._names = [task.id for task in tasks]
        self._task: Task | None = None
        self._text = ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Starts a task.

        Args:
            seed: Seeds which task is drawn, and the environment.
            options: `task`: the id of the one to start.

        Raises:
            EnvError: There is no such task.
        """
        super().reset(seed=seed)
        drawn = self._names[int(self.np_random.integers(len(self._names)))]
        name = (options or {}).get("task", drawn)
        if name not in self._tasks:
            raise EnvError(f"ToGymnasium: there is no task {name!r} among {len(self._names)}.")
        self._task = self._tasks[name]
        observation = self.env.reset(self._task, int(self.np_random.integers(2**31)))
        self._text = observation.text
        return observation.text, self._info(observation, False, 0.0)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Plays a command.

        Raises:
            EnvError: before the first `reset`, or after the end.
        """
        outcome = self.env.step(action)
        self._text = outcome.observation.text
        info = self._info(outcome.observation, outcome.success, outcome.score)
        return self._text, outcome.reward, outcome.terminated, outcome.truncated, info

    def render(self) -> str | None:
        """Returns the current observation in the mode `ansi`."""
        return self._text if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Releases the environment."""
        self.env.close()

    def _info(self, observation: Observation, success: bool, score: float) -> dict[str, Any]:
        return {
            "admissible": list(observation.admissible),
            "anchor": observation.anchor,
            "instruction": self.env.instruction,
            "task": self._task.id,
            "family": self._task.family,
            "success": success,
            "score": score,
        }
