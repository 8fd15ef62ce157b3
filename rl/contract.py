"""What a sampler says about fixed prompts, compared with the learner after every transfer of weights.

Weights can be compared to the bit (`agent.fingerprints`). What that cannot see is how they are used: at
another temperature, with another scaling, on states of a prompt that were computed with older weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from agent.policy import Policy, Sampling
from agent.types import Generation, Request
from rl.learner.forward import score_rows
from rl.learner.learner import Learner
from rl.rows.assemble import TokenRow

PROMPTS, TOKENS = 8, 8
"""Prompts of a probe, and tokens sampled after each."""

CLEAR = 16.0
"""Squares of the learner's move over those of what kernels differ by, from which the sampler is judged."""


@dataclass(frozen=True, slots=True)
class Answers:
    """To the prompts of a probe, one response each.

    Attributes:
        ids: Sampled tokens.
        sampler: Their log-probabilities as sampled (nats).
        learner: The same tokens' by the learner.
    """

    ids: list[list[int]]
    sampler: list[np.ndarray]
    learner: list[np.ndarray]

    @property
    def gap(self) -> float:
        """Largest |difference| between sampler and learner."""
        return max(float(np.abs(a - b).max()) for a, b in zip(self.sampler, self.learner, strict=True))


@dataclass(frozen=True, slots=True)
class Moves:
    """What a transfer moved, on the tokens that both probes sampled in the same places.

    Attributes:
        sampler: Log-probability now − before, as sampled [n].
        learner: The same by the learner [n].
        error: Sampler − learner before [n]: what their kernels differ by.
    """

    sampler: np.ndarray
    learner: np.ndarray
    error: np.ndarray

    @classmethod
    def between(cls, before: Answers, now: Answers) -> Moves:
        """Compares two probes."""
        parts: list[list[np.ndarray]] = [[], [], []]
        for k, (old, new) in enumerate(zip(before.ids, now.ids, strict=True)):
            same = _common(old, new)
            parts[0].append(now.sampler[k][:same] - before.sampler[k][:same])
            parts[1].append(now.learner[k][:same] - before.learner[k][:same])
            parts[2].append(before.sampler[k][:same] - before.learner[k][:same])
        return cls(*(np.concatenate(part).astype(np.float64) for part in parts))

    @property
    def followed(self) -> float | None:
        """By how much the sampler's move follows the learner's: 1 with the same weights, 0 with the old ones.

        The slope of a regression through 0. None where the learner's move does not stand out from rounding:
        there the slope of new weights is near 0, too.
        """
        size = float(self.learner @ self.learner)
        if not size or size < CLEAR * float(self.error @ self.error):
            return None
        return float(self.sampler @ self.learner) / size

    @property
    def frozen(self) -> bool:
        """Whether the sampler says what it said before, to the bit, while the learner has moved nearly
        everywhere.

        Every bit of a distribution's normaliser depends on every weight, in any number format.
        """
        return len(self.sampler) >= TOKENS and not self.sampler.any() and (self.learner != 0).mean() > 0.5


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two responses begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


@dataclass(slots=True)
class Contract:
    """Compares sampler and learner after every transfer of weights, and the move of the one with the other's.

    Attributes:
        probe: Token ids of a prompt; others are made of it by rotation.
        temperature: Of the run.
        tolerance: Largest |difference| of a log-probability that is let pass (nats). In float32 engines agree
            to 1e-5; bfloat16 keeps 8 bits, and other kernels round elsewhere.
        states: Whether to look for states of a prompt that outlived a transfer: the sampler answers a
            conversation that it knows, and then the same as one that may share nothing. Of no use where the
            two may be answered by different machines.
    """

    probe: Sequence[int]
    temperature: float = 1.0
    tolerance: float = 1e-3
    states: bool = True
    _before: Answers | None = field(default=None, init=False)

    def check(self, learner: Learner, policy: Policy) -> tuple[dict[str, float], str | None]:
        """Probes the policy; every rank calls it.

        Args:
            learner: Whose weights the policy has taken.
            policy: To be probed.

        Returns:
            `sync/…`, and what is wrong on some rank, None if nothing is. Whatever it is was found twice.
        """
        for _ in range(2):
            now = self._answers(learner, policy)
            moves = None if self._before is None else Moves.between(self._before, now)
            fault = self._fault(now, moves, self._stale(policy, now))
            found = [one for one in learner.ranks.gather(fault) if one]
            if not found:
                self._before = now
                break
        metrics = {"sync/logp_gap": learner.engine.reduce([now.gap], "max")[0]}
        if moves is not None and len(moves.learner):
            metrics["sync/moved_learner"] = float(np.sqrt(np.mean(moves.learner**2)))
            metrics["sync/moved_sampler"] = float(np.sqrt(np.mean(moves.sampler**2)))
        return metrics, found[0] if found else None

    def _fault(self, now: Answers, moves: Moves | None, stale: float) -> str | None:
        if not now.gap <= self.tolerance:
            return (
                f"its log-probabilities differ from the learner's by {now.gap:.3g} nats after a weight sync "
                f"(limit {self.tolerance:g}, generator.tolerance): it samples from other weights or at "
                "another temperature"
            )
        if stale:
            return (
                "a conversation that it knew before the weight sync differs from the same one begun anew by "
                f"{stale:.3g} nats: it goes on with states that were computed with older weights"
            )
        if moves is not None and moves.frozen:
            return (
                "its log-probabilities are those of before the weight sync to the bit: it has the old weights"
            )
        if moves is not None and moves.followed is not None and moves.followed < 0.5:
            return (
                f"it has followed {moves.followed:.0%} of what the update moved the learner's "
                "log-probabilities by: it samples from older weights"
            )
        return None

    def _prompts(self) -> list[list[int]]:
        ids = list(self.probe)
        return [[*ids[k:], *ids[:k]] for k in range(PROMPTS)]

    def _answers(self, learner: Learner, policy: Policy) -> Answers:
        """Asks in conversations that last from transfer to transfer, whose states a policy may have kept."""
        requests = [
            Request(-1 - k, ids, True, seed=k, max_new_tokens=TOKENS)
            if self._before is None
            else Request(-1 - k, ids[-1:], False, seed=k, max_new_tokens=TOKENS, keep=len(ids) - 1)
            for k, ids in enumerate(self._prompts())
        ]
        sampled = policy.generate(requests, Sampling(self.temperature))
        rows = []
        for ids, one in zip(self._prompts(), sampled, strict=True):
            whole = np.array([*ids, *one.ids], dtype=np.int32)
            logps = np.array(one.logps, dtype=np.float32)
            rows.append(TokenRow(whole, ((len(ids), len(whole), 0),), logps, 0))
        # Not `learner.logps`, which deals equal rows over the ranks: each has sampled its own.
        scored = score_rows(
            learner.engine.module,
            rows,
            temperature=self.temperature,
            token_budget=sum(len(row.ids) for row in rows),
        )
        return Answers([one.ids for one in sampled], [row.logp_sampled for row in rows], scored)

    def _stale(self, policy: Policy, now: Answers) -> float:
        """Largest difference between a known conversation and the same begun anew (nats).

        0 if there is none, or if the sampler does not repeat itself, so that a difference says nothing.
        """
        if not self.states or self._before is None:
            return 0.0
        anew, again = self._anew(policy), self._anew(policy)
        if any(a.ids != b.ids or a.logps != b.logps for a, b in zip(anew, again, strict=True)):
            return 0.0
        gaps = [0.0]
        for k, one in enumerate(anew):
            if one.ids != now.ids[k]:
                return float("inf")
            gaps.append(float(np.abs(np.array(one.logps, dtype=np.float32) - now.sampler[k]).max()))
        return max(gaps)

    def _anew(self, policy: Policy) -> list[Generation]:
        requests = [
            Request(-1 - PROMPTS - k, ids, True, seed=k, max_new_tokens=TOKENS, private=True)
            for k, ids in enumerate(self._prompts())
        ]
        answers = policy.generate(requests, Sampling(self.temperature))
        for request in requests:
            policy.release(request.key)
        return answers
