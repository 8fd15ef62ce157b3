"""The rollout's loop: what waiting costs, in both modes, and what one slow environment costs.

    python -m bench.rollout [--parallel 128] [--trajectories 512] [--model-parallel 32] [--threads 2]

First on a simulated clock, so that the figures are the loop's own and the same on every machine: a decoding
round takes 10 ms and 0.1 ms per response, an environment 20 ms, give or take half; then one environment is
100 times slower. Then with a model of the embedded policy's size and real time: tokens per CPU second in both
modes, taking turns; environments at once, where the modes differ in how they batch alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from agent.policies.torch_policy import TorchPolicy
from agent.policy import Policy, Sampling
from agent.prompts.parse import parse
from agent.rollout.options import Mode, RolloutOptions
from agent.rollout.rollout import Rollout
from agent.types import Generation, Request
from bench.generation import VOCAB, make_model
from configs.seeds import derive
from envs.base import Env, Observation, Outcome
from envs.pools.pool import EnvPool, LocalPool, Reply

WINDOW = 2048
ROUND_S, RESPONSE_S, ENV_S, SLOWER = 0.010, 0.0001, 0.020, 100


@dataclass
class Clock:
    """Time that passes when somebody says so."""

    now: float = 0.0


@dataclass(frozen=True)
class Walk:
    """A task: a walk of that many steps."""

    id: str
    steps: int
    family: str = "walk"
    split: str = "bench"


class WalkEnv(Env):
    """Ends after the task's steps."""

    def reset(self, task: Walk, seed: int = 0) -> Observation:
        """See `Env.reset`."""
        self._left = task.steps
        return Observation("", "", ())

    def step(self, action: str) -> Outcome:
        """See `Env.step`."""
        self._left -= 1
        return Outcome(Observation("", str(self._left), ()), 0.0, self._left == 0, False, False, 0.0)

    def snapshot(self) -> int:
        """See `Env.snapshot`."""
        return self._left

    def restore(self, snapshot: int) -> Observation:
        """See `Env.restore`."""
        self._left = snapshot
        return Observation("", str(self._left), ())


class SimulatedPool(LocalPool):
    """Environments that take their time on a clock; of those asked last, `slow` ones take `SLOWER` times."""

    def __init__(self, clock: Clock, slow: Sequence[int] = ()) -> None:
        super().__init__(WalkEnv)
        self._clock, self._slow, self._due = clock, frozenset(slow), {}

    def _do(self, key: int, work: object) -> None:
        super()._do(key, work)
        spread = np.random.default_rng([key, self._traces[key].index]).uniform(0.5, 1.5)
        self._due[key] = self._clock.now + ENV_S * spread * (SLOWER if key in self._slow else 1)

    def _ready(self, timeout: float | None) -> list[Reply]:
        if timeout is None and self._due:
            self._clock.now = max(self._clock.now, min(self._due.values()))
        ready = sorted(key for key, due in self._due.items() if due <= self._clock.now)
        return [self._replies.pop(key) for key in ready if self._due.pop(key) is not None]

    def _release(self, key: int) -> None:
        self._due.pop(key, None)
        super()._release(key)


class SimulatedPolicy:
    """Answers with 8 to 20 tokens; every round takes its time on a clock."""

    version, window, takes_adapters = 0, WINDOW, False

    def __init__(self, clock: Clock) -> None:
        self._clock, self._left = clock, {}

    def start(self, requests: Sequence[Request], sampling: Sampling) -> None:
        """See `Policy.start`."""
        for request in requests:
            self._left[request.key] = [
                length := int(np.random.default_rng(request.seed).integers(8, 21)),
                length,
            ]

    def advance(self) -> list[tuple[int, Generation]]:
        """See `Policy.advance`."""
        self._clock.now += ROUND_S + RESPONSE_S * len(self._left)
        for left in self._left.values():
            left[0] -= 1
        ended = [key for key, left in self._left.items() if not left[0]]
        lengths = [self._left.pop(key)[1] for key in ended]
        return [(k, Generation([0] * n, [0.0] * n, "stop")) for k, n in zip(ended, lengths, strict=True)]

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Generation]:
        """See `Policy.generate`."""
        self.start(requests, sampling)
        found: dict[int, Generation] = {}
        while self._left:
            found.update(self.advance())
        return [found[request.key] for request in requests]

    def release(self, key: int) -> None:
        """See `Policy.release`."""
        self._left.pop(key, None)


class Prompts:
    """Prompts of 120 tokens at first and 10 to 30 for every later step; responses mean nothing."""

    window, max_response_tokens = WINDOW, 20
    opened = ""  # see `TurnFormat.opened`
    parser = staticmethod(parse)

    def __init__(self) -> None:
        self.turns = self

    def start(self, instruction: str) -> _Conversation:
        """See `PromptBuilder.start`."""
        return _Conversation()

    def decode(self, ids: Sequence[int]) -> str:
        """See `TurnFormat.decode`."""
        return "<think>on</think><action>go</action>"


class _Conversation:
    def __init__(self) -> None:
        self._rng, self._began = np.random.default_rng(0), False

    def prompt(self, observation: Observation) -> tuple[list[int], bool]:
        fresh, self._began = not self._began, True
        return self._rng.integers(0, VOCAB, 120 if fresh else self._rng.integers(10, 31)).tolist(), fresh

    def record(self, response_ids: list[int], action: str) -> None:
        pass


def tasks(count: int) -> list[Walk]:
    """Walks of 5 to 35 steps."""
    return [Walk(str(i), int(np.random.default_rng(derive(0, i)).integers(5, 36))) for i in range(count)]


def play(policy: Policy, pool: EnvPool, mode: Mode, walks: Sequence[Walk], parallel: int) -> int:
    """Plays every walk once and returns the tokens sampled."""
    groups = Rollout(
        policy,
        Sampling(1.0),
        pool,
        walks,
        group_size=1,
        prompts=Prompts(),
        max_parallel=parallel,
        seed=0,
        options=RolloutOptions(mode),
    ).play()
    return sum(trajectory.tokens_sampled for group in groups for trajectory in group)


def simulated(mode: Mode, slow: Sequence[int], trajectories: int, parallel: int) -> float:
    """Tokens a simulated second."""
    clock = Clock()
    tokens = play(SimulatedPolicy(clock), SimulatedPool(clock, slow), mode, tasks(trajectories), parallel)
    return tokens / clock.now


def with_model(mode: Mode, parallel: int) -> float:
    """Tokens per CPU second of a random model."""
    policy = TorchPolicy(make_model(), [VOCAB], window=WINDOW, max_parallel=parallel)
    walks = [replace(walk, steps=min(walk.steps, 12)) for walk in tasks(2 * parallel)]
    began = time.process_time()
    tokens = play(policy, LocalPool(WalkEnv), mode, walks, parallel)
    return tokens / (time.process_time() - began)


def main() -> None:
    """Prints one line a setting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parallel", type=int, default=128)
    parser.add_argument("--trajectories", type=int, default=512)
    parser.add_argument("--model-parallel", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"simulated clock, {options.trajectories} trajectories, {options.parallel} in flight, tokens/s")
    for mode in ("free", "deterministic"):
        even, slowed = (simulated(mode, slow, options.trajectories, options.parallel) for slow in ((), (0,)))
        loss = slowed / even - 1
        print(
            f"  {mode:14s} {even:8,.0f}   one environment {SLOWER} times slower {slowed:8,.0f} ({loss:+.1%})"
        )
    print(
        f"model of 0.9 M parameters, {options.model_parallel} in flight, environments at once, tokens/CPU s"
    )
    for _ in range(options.repeat):
        rates = {mode: with_model(mode, options.model_parallel) for mode in ("free", "deterministic")}
        print("  " + "   ".join(f"{mode} {rate:,.0f}" for mode, rate in rates.items()))


if __name__ == "__main__":
    main()
