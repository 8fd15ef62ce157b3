"""WebShop as an `Env`: one trajectory of one goal at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from envs.base import Env, EnvError, Observation, Outcome, Task
from envs.webshop.actions import act, admissible, clickables
from envs.webshop.goals import Goal
from envs.webshop.pages import Part, page, plain_text, quoted_text, rich_text, without_instruction
from envs.webshop.reward import Reward
from envs.webshop.shop import Shop
from envs.webshop.state import State

Mode = Literal["text", "text_rich"]
Anchor = Literal["state", "text"]

MODES: tuple[Mode, ...] = ("text", "text_rich")
ANCHORS: tuple[Anchor, ...] = ("state", "text")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a trajectory is made of at one moment; valid in any `WebshopEnv` of an equal shop."""

    state: State
    observation: Observation
    steps: int
    over: bool


class WebshopEnv(Env):
    """Plays one goal at a time. Deterministic; the seed of `reset` is used by `search[<r>]` alone.

    Success is a reward of exactly 1, the score is the reward of the purchase, 0 without one.

    Args:
        shop: The shop; environments of a process share one.
        max_steps: Steps after which a trajectory is truncated. Refused actions count.
        mode: Form of the observation, see `pages`.
        show_instruction: Whether pages repeat the instruction, as published. If not, they start after it and
            their parts are quoted in mode "text", as in the prompts of published step-level credit methods.
        show_attributes: Whether product pages have a button to the attributes that the reward looks at.
        anchor: What `Observation.anchor` holds. "text" is the page without the instruction, as published
            step-level credit methods use it; in mode "text" it does not tell what is selected. "state" is
            that page, the product and the selected options, in whatever order they were selected.
        reward: Reward of a success; every other step has 0.
        partial: Give `reward` times the score for any purchase instead.

    Raises:
        EnvError: an option is out of range, or rewards cannot be computed from the catalogue.
    """

    def __init__(
        self,
        shop: Shop,
        max_steps: int = 15,
        mode: Mode = "text",
        *,
        show_instruction: bool = True,
        show_attributes: bool = False,
        anchor: Anchor = "state",
        reward: float = 1.0,
        partial: bool = False,
    ) -> None:
        if max_steps < 1:
            raise EnvError(f"WebshopEnv: max_steps must be at least 1, got {max_steps}.")
        for option, value, known in (("mode", mode, MODES), ("anchor", anchor, ANCHORS)):
            if value not in known:
                raise EnvError(f"WebshopEnv: {option} must be one of {', '.join(known)}, got {value!r}.")
        if not shop.catalogue.noun_source:
            raise EnvError(
                "WebshopEnv: the catalogue has no nouns, which the reward compares: import it with nouns "
                "(`python run.py data webshop --help`)."
            )
        self.shop = shop
        self.max_steps = max_steps
        self.mode = mode
        self.show_instruction = show_instruction
        self.show_attributes = show_attributes
        self.anchor = anchor
        self.reward = reward
        self.partial = partial
        self._now: Snapshot | None = None
        self._targets: Mapping[str, Part] = {}

    @property
    def bought(self) -> Reward | None:
        """The reward of the purchase in its parts, or None before one."""
        return self._now.state.bought if self._now else None

    def reset(self, task: Task, seed: int = 0) -> Observation:
        """Starts at the search page.

        Raises:
            EnvError: `task` is not a `Goal`.
        """
        if not isinstance(task, Goal):
            raise EnvError(f"WebshopEnv plays envs.webshop.Goal tasks, got {type(task).__name__}.")
        self.instruction = task.instruction
        state = State(task, seed, name=task.id)
        self._now = Snapshot(state, self._observe(state), 0, False)
        return self._now.observation

    def step(self, action: str) -> Outcome:
        """Plays one action; see `Env.step`. What is refused leaves the page as it is."""
        now = self._now
        if now is None:
            raise EnvError("WebshopEnv: step before reset. Call reset(task) first.")
        if now.over:
            raise EnvError(
                f"WebshopEnv: the trajectory of {now.state.goal.id!r} is over. Call reset or restore."
            )
        if not isinstance(action, str):
            raise EnvError(f"WebshopEnv: an action is a string, got {type(action).__name__}.")
        state = act(self.shop, now.state, self._targets, action)
        observation = now.observation if state is None else self._observe(state)
        state = state or now.state
        steps, done = now.steps + 1, state.bought is not None
        truncated = not done and steps >= self.max_steps
        self._now = Snapshot(state, observation, steps, done or truncated)
        score = state.bought.total if state.bought else 0.0
        success = score == 1.0
        return Outcome(
            observation=observation,
            reward=self.reward * (score if self.partial else float(success)),
            terminated=done,
            truncated=truncated,
            success=success,
            score=score,
        )

    def snapshot(self) -> Snapshot:
        """Returns the present moment; costs nothing, since states are immutable."""
        if self._now is None:
            raise EnvError("WebshopEnv: snapshot before reset. Call reset(task) first.")
        return self._now

    def restore(self, snapshot: Snapshot) -> Observation:
        """Goes back to a snapshot of this or another instance."""
        if not isinstance(snapshot, Snapshot):
            raise EnvError(f"WebshopEnv: expected a value of snapshot(), got {type(snapshot).__name__}.")
        self._now = snapshot
        self._targets = clickables(page(self.shop, snapshot.state, self.show_attributes))
        self.instruction = snapshot.state.goal.instruction
        return snapshot.observation

    def close(self) -> None:
        """Lets go of the trajectory; idempotent. A later `reset` opens the instance again."""
        self._now, self._targets = None, {}

    def _observe(self, state: State) -> Observation:
        parts = page(self.shop, state, self.show_attributes)
        self._targets = clickables(parts)
        return Observation(
            self._text(parts, state), self._key(parts, state), admissible(self._targets, state)
        )

    def _text(self, parts: Sequence[Part], state: State) -> str:
        if self.mode == "text":
            return plain_text(parts) if self.show_instruction else quoted_text(parts, state)
        return rich_text(parts if self.show_instruction else without_instruction(parts, state), state)

    def _key(self, parts: Sequence[Part], state: State) -> str:
        if self.anchor == "state":
            selected = " ".join(f"[{name}: {value}]" for name, value in sorted(state.options))
            return f"{quoted_text(parts, state)}\n{state.asin} {selected}"
        if self.mode == "text":
            return quoted_text(parts, state)
        return rich_text(without_instruction(parts, state), state)
