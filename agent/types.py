"""Trajectories as the rollout records them and everything downstream reads them.

Token ids sampled by the policy are kept as sampled; nothing here is ever re-tokenised. The two
prompt forms share one record: a step's `prompt_ids` either open a new token row (`fresh=True`: the
whole prompt) or continue the row of the step before (`fresh=False`: only what was added since that
step's response). Step-wise prompting is the special case in which every step is fresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from envs.base import Observation

Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Request:
    """One generation to make.

    Attributes:
        key: Conversation the request belongs to; a backend may keep its KV cache under it.
        ids: New prompt tokens: the whole prompt if `fresh`, else what follows the last response.
        fresh: Forget whatever is cached under `key` first.
        seed: Seeds this response's sampling, so that it does not depend on its batch.
        max_new_tokens: Longest response, stop token included.
        keep: Tokens of the row that stay before `ids` are added, the rest being forgotten (None: all). With
            the length of a prompt it asks for another response to it. Not together with `fresh`.
        private: Share no computed states with other conversations that begin alike.
    """

    key: int
    ids: Sequence[int]
    fresh: bool
    seed: int
    max_new_tokens: int
    keep: int | None = None
    private: bool = False


@dataclass(frozen=True, slots=True)
class Generation:
    """What the policy sampled for one `Request`.

    Attributes:
        ids: Response tokens as sampled, the stop token included if there was one.
        logps: Log-probability of each under the distribution really sampled from (temperature
            included), same length as `ids`.
        finish: `stop`, or `length` when `max_new_tokens` or the window cut the response.
        signals: [tokens][1 + top], the entropy of the distribution each token was drawn from and the
            log-probabilities of its `Sampling.top` likeliest candidates; None if `top` is 0.
    """

    ids: list[int]
    logps: list[float]
    finish: Finish
    signals: list[list[float]] | None = None


@dataclass(frozen=True, slots=True)
class UnplayedResponse:
    """A response to a step's prompt that was not played, for methods that learn from what was not done.

    Attributes:
        opening: Tokens it was made to begin with; not sampled.
        ids: Tokens sampled after them.
        logps: Their log-probabilities when sampled.
        finish: Why it ended.
    """

    opening: tuple[int, ...]
    ids: list[int]
    logps: list[float]
    finish: Finish


@dataclass(slots=True)
class Step:
    """One observation → action → reward, with the tokens that produced the action.

    Attributes:
        t: Position in the trajectory, from 0.
        observation: What the agent saw.
        prompt_ids: See the module docstring.
        fresh: Whether `prompt_ids` open a new token row.
        response_ids: Sampled tokens (stop token included).
        logp_sampled: Their log-probabilities when sampled, same length.
        finish: Why the response ended.
        policy_version: Weights that sampled it.
        response: Decoded text of the response.
        thought: Text inside `<think>`, "" if none.
        action: The parsed command sent to the environment ("" if the response had none).
        well_formed: The response has the required tags in the required order (as `prompt.parse` has it).
        admissible: The observation admits the action, see `Observation.admits`.
        reward: Environment reward of the step, unscaled.
        next_observation: What the environment answered.
        forced: [start, end) of the response tokens that were put there, not sampled; they carry no loss.
        unplayed: Other responses to the same prompt.
        listed: Validity asks for an admissible action (`prompt.parse: strict`).
    """

    t: int
    observation: Observation
    prompt_ids: list[int]
    fresh: bool
    response_ids: list[int]
    logp_sampled: list[float]
    finish: Finish
    policy_version: int
    response: str
    thought: str
    action: str
    well_formed: bool
    admissible: bool
    reward: float
    next_observation: Observation
    forced: tuple[int, int] = (0, 0)
    unplayed: tuple[UnplayedResponse, ...] = ()
    listed: bool = True

    @property
    def sampled(self) -> list[tuple[int, int]]:
        """[start, end) of the pieces of the response that were sampled: all of it, unless some was forced."""
        start, end = self.forced
        pieces = [(0, start), (end, len(self.response_ids))]
        return [piece for piece in pieces if piece[1] > piece[0]]

    @property
    def valid(self) -> bool:
        """Well-formed *and* admissible; the first alone where the run's parser asks for no more."""
        return self.well_formed and (self.admissible or not self.listed)


@dataclass(slots=True)
class Trajectory:
    """One attempt at a task; `index` counts the members of `group`."""

    task_id: str
    family: str
    instruction: str
    group: int
    index: int
    seed: int
    steps: list[Step] = field(default_factory=list)
    success: bool = False
    score: float = 0.0
    truncated: bool = False

    @property
    def tokens_sampled(self) -> int:
        """Response tokens over all steps, those apart that were put there."""
        return sum(end - start for step in self.steps for start, end in step.sampled)


Group = list[Trajectory]
