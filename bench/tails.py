"""What an update's long tail of trajectories costs, and what each way of not waiting for it saves.

    python -m bench.tails [--updates 4] [--learner 1 2.65] [--record RUN UPDATE…]

Whole updates on a simulated clock, with the costs of `bench.rollout`: a decoding round takes 10 ms and 0.1 ms
per response (on all GPUs together, each with its share of the responses), an environment 20 ms, give or take
half. Printed are seconds an update relative to (a) in the same setting, less is better:

    (a)          synchronous rounds: every step waits for the longest response and the slowest environment
    (b)          free running: no trajectory waits for another, the learner waits for the last of them
    (c) shared   (b) with `rollout.staleness=1`, learner and generator on the same GPUs: while both work, each
                 gets half of them
    (c) apart    the same with GPUs of their own, the best split of `GPUS`
    (d)          partial rollouts: twice the groups in flight; an update begins with the first groups that are
                 complete, the others go on under the next weights, their contexts read anew

`tail` is the share of GPU time in which the generator has fewer than half of an update's trajectories left
and no learner works beside it; `idle` the share in which a GPU waits for the other side or for environments,
no response being decoded. `old` is the share of the trained steps that older weights sampled, as
`train/stale_steps`, `age` the most updates between sampling a step and training on it.

The learner's time is given as a multiple of (b)'s rollout: 2.65 is what SDAR's issue 51 publishes for 3B on
four A100 (179 + 175 + 774 s beside a generation of 425 s). Lengths are resampled by groups, the same ones for
every way.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.lengths import Steps, paper_shape, record, recorded
from bench.rollout import ENV_S, RESPONSE_S, ROUND_S
from configs.seeds import derive

GPUS = 4
READ_S = 1e-5  # to read a token of a context anew: 3 Gflop of 1.5B parameters at a third of an H100's peak
CONTEXT = 120  # tokens of a first prompt; see `bench.rollout.Prompts`
OBSERVATION = 20  # of every later one


@dataclass
class Spent:
    """GPU seconds of one way, in units of all GPUs.

    Attributes:
        seconds: Wall clock.
        tail: Fewer than half of an update's trajectories left, and no learner beside them.
        idle: A GPU waits.
        old: Share of the trained steps that older weights sampled.
        age: Most updates between sampling and training.
    """

    seconds: float = 0.0
    tail: float = 0.0
    idle: float = 0.0
    old: float = 0.0
    age: int = 0


class Generator:
    """Plays trajectories of given lengths on a clock.

    Args:
        together: Every step waits for all trajectories.
        share: Of the GPUs, which makes the cost per response grow.
        size: Trajectories of an update.
    """

    def __init__(self, size: int, *, together: bool = False, share: float = 1.0, seed: int = 0) -> None:
        self._size, self._together, self._share = size, together, share
        self._rng = np.random.default_rng(seed)
        self.spent = Spent()
        self.learner = 0.0  # seconds of work that wait on the same GPUs
        self._steps: list[Steps] = []
        self._left = np.empty(0, int)  # tokens of the response being decoded, 0: none
        self._due = np.empty(0)  # when the environment answers, inf: it is not asked
        self.at = np.empty(0, int)  # step number; the number of steps: ended

    def start(self, trajectories: Sequence[Steps]) -> range:
        """Begins trajectories and returns their numbers."""
        first = len(self._steps)
        self._steps += trajectories
        self._left = np.append(self._left, [steps[0] for steps in trajectories])
        self._due = np.append(self._due, np.full(len(trajectories), np.inf))
        self.at = np.append(self.at, np.zeros(len(trajectories), int))
        return range(first, len(self._steps))

    def ended(self, number: int) -> bool:
        """Whether a trajectory has ended."""
        return self.at[number] == len(self._steps[number])

    def context(self, number: int) -> int:
        """Tokens of a trajectory so far."""
        at = int(self.at[number])
        return CONTEXT + at * OBSERVATION + sum(self._steps[number][:at])

    def advance(self) -> list[int]:
        """One decoding round, or the wait for an environment; returns the trajectories that ended by it."""
        decoding = self._left > 0
        if not decoding.any():
            self._pass(max(self._due.min() - self.spent.seconds, 0.0), decoding=False)
        else:
            self._pass(ROUND_S + RESPONSE_S * decoding.sum() / self._share, decoding=True)
            self._left[decoding] -= 1
            answered = np.flatnonzero(decoding & (self._left == 0))
            spread = ENV_S * self._rng.uniform(0.5, 1.5, len(answered))
            self._due[answered] = self.spent.seconds + spread
            if self._together and not (self._left > 0).any():
                asked = np.isfinite(self._due)
                self._due[asked] = self.spent.seconds + ENV_S * self._rng.uniform(0.5, 1.5, asked.sum()).max()
        if self._together and (self._left > 0).any():
            return []
        ended = []
        for number in np.flatnonzero(self._due <= self.spent.seconds + 1e-12):
            self._due[number] = np.inf
            self.at[number] += 1
            if self.ended(number):
                ended.append(int(number))
            else:
                self._left[number] = self._steps[number][self.at[number]]
        return ended

    def pause(self, seconds: float) -> None:
        """Nothing is decoded for so long; environments go on."""
        self.spent.seconds += seconds

    def _pass(self, seconds: float, *, decoding: bool) -> None:
        """Time that a round takes, longer where a learner has half of the GPUs."""
        beside = min(self.learner, seconds)
        self.learner -= beside
        alone = seconds - beside
        if decoding:
            seconds += beside
        else:
            self.spent.idle += alone * self._share
        unfinished = (self._left > 0).sum() + np.isfinite(self._due).sum()
        if unfinished < self._size / 2:
            self.spent.tail += alone * self._share
        self.spent.seconds += seconds


def batch(groups: Sequence[list[Steps]], count: int, update: int) -> list[list[Steps]]:
    """An update's groups, drawn with replacement."""
    rng = np.random.default_rng(derive(0, "tails", update))
    return [groups[int(i)] for i in rng.integers(0, len(groups), count)]


def rollout(generator: Generator, groups: Sequence[list[Steps]]) -> float:
    """Plays groups to their end; returns the seconds."""
    began = generator.spent.seconds
    left = len(generator.start([steps for group in groups for steps in group]))
    while left:
        left -= len(generator.advance())
    return generator.spent.seconds - began


def in_turns(groups: Sequence[list[Steps]], updates: int, learner: float, *, together: bool) -> Spent:
    """(a) and (b): a rollout, then the learner."""
    generator = Generator(sum(map(len, groups)), together=together)
    for update in range(updates):
        rollout(generator, batch(groups, len(groups), update))
        generator.pause(learner)
    return generator.spent


def ahead(groups: Sequence[list[Steps]], updates: int, learner: float, generating: int | None) -> Spent:
    """(c): the learner works while the next update is rolled out, on the GPUs beside the `generating` ones.

    With None both share all GPUs.
    """
    share = 1.0 if generating is None else generating / GPUS
    size = sum(map(len, groups))
    spent = Spent(old=1.0, age=1)
    generator = Generator(size, share=share)
    training = learner if generating is None else learner / (1 - share)
    for update in range(updates):
        generator.learner = learner if generating is None else 0.0
        seconds = rollout(generator, batch(groups, len(groups), update))
        if generating is None:
            spent.seconds += seconds + generator.learner
        else:
            spent.seconds += max(seconds, training)
            spent.idle += max(training - seconds, 0) * share + max(seconds - training, 0) * (1 - share)
    spent.tail, spent.idle = generator.spent.tail, spent.idle + generator.spent.idle
    return spent


def partial(groups: Sequence[list[Steps]], updates: int, learner: float, warm: int = 4) -> Spent:
    """(d): twice the groups in flight; the first updates, which begin with nothing kept, are not counted."""
    count, size = len(groups), len(groups[0])
    generator = Generator(count * size)
    open_groups: dict[int, tuple[range, list[list[int]]]] = {}  # number → members, their steps by update
    drawn, before, old, steps, age = 0, Spent(), 0, 0, 0
    for update in range(updates + warm):
        if update == warm:
            spent = generator.spent
            before = Spent(spent.seconds, spent.tail, spent.idle)
            old = steps = age = 0
        for group in batch(groups, 2 * count - len(open_groups), update):
            open_groups[drawn] = (generator.start(group), [])
            drawn += 1
        done = _complete(generator, open_groups)
        while len(done) < count:
            if generator.advance():
                done = _complete(generator, open_groups)
        for members, seen in open_groups.values():
            seen.append(int(sum(generator.at[list(members)])))
        for number in done[:count]:
            _, seen = open_groups.pop(number)
            fresh = seen[-1] - (seen[-2] if len(seen) > 1 else 0)
            steps, old, age = steps + seen[-1], old + seen[-1] - fresh, max(age, len(seen) - 1)
        kept = [n for members, _ in open_groups.values() for n in members if not generator.ended(n)]
        generator.pause(learner + READ_S * sum(map(generator.context, kept)))
    spent = generator.spent
    return Spent(
        spent.seconds - before.seconds, spent.tail - before.tail, spent.idle - before.idle, old / steps, age
    )


def _complete(generator: Generator, open_groups: dict[int, tuple[range, list[list[int]]]]) -> list[int]:
    return [n for n, (members, _) in open_groups.items() if all(map(generator.ended, members))]


def compare(groups: Sequence[list[Steps]], updates: int, ratio: float) -> dict[str, Spent]:
    """Every way on the same updates; the learner takes `ratio` times (b)'s rollout."""
    learner = ratio * in_turns(groups, updates, 0.0, together=False).seconds / updates
    apart = [ahead(groups, updates, learner, generating) for generating in range(1, GPUS)]
    return {
        "(a) rounds": in_turns(groups, updates, learner, together=True),
        "(b) free": in_turns(groups, updates, learner, together=False),
        "(c) shared": ahead(groups, updates, learner, None),
        "(c) apart": min(apart, key=lambda spent: spent.seconds),
        "(d) partial": partial(groups, updates, learner),
    }


def main() -> None:
    """Prints one line a way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--learner", type=float, nargs="+", default=[1.0, 2.65])
    parser.add_argument("--record", nargs="+", metavar=("RUN", "UPDATE"), help="write the lengths of a run")
    options = parser.parse_args()
    if options.record:
        run, *numbers = options.record
        record(Path(run), [int(number) for number in numbers])
        return
    shapes = {f"alfworld_cpu, update {update}": recorded(update) for update in (1, 40)}
    for success in (0.2, 0.5, 0.9):
        shapes[f"the papers' ALFWorld, {success:.0%} succeed"] = paper_shape(success)
    for name, groups in shapes.items():
        print(f"{name}: {sum(map(len, groups))} trajectories, seconds relative to (a)")
        for ratio in options.learner:
            found = compare(groups, options.updates, ratio)
            whole = found["(a) rounds"].seconds
            print(
                f"  learner {ratio:g} of (b)'s rollout; (a) takes {whole / options.updates:.1f} s an update"
            )
            for way, spent in found.items():
                print(
                    f"    {way:12s} {spent.seconds / whole:5.2f}   tail {spent.tail / spent.seconds:4.0%}   "
                    f"idle {spent.idle / spent.seconds:4.0%}   old {spent.old:4.0%}   age {spent.age}"
                )


if __name__ == "__main__":
    main()
