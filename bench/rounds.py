"""How long ranks wait for each other: critical path over ideal, at the papers' sizes and the CPU default's.

    python -m bench.rounds

An optimiser step's rows are dealt to the ranks in rounds (`rl.learner.rounds`); a round lasts as long as its
most expensive micro-batch. Said is Σ of these over the cost of all rows divided by the ranks (1: nobody
waits), the mean and worst of 20 draws; beside it the same for rows sorted by length, padded to the longest
of their micro-batch and dealt in that order, over the same ideal: there padding counts as waiting.

Row lengths are drawn, no GPU recorded them: a step-wise prompt of 300 to 2,048 tokens (ALFWorld, normal, mean
900) or 500 to 4,096 (WebShop, mean 2,000), and a log-normal response of 20 to 512 (median 120). The CPU
default's rows are whole trajectories of 4 to 30 steps of 27 tokens after a prompt of 150.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rl.learner.rounds import Round, critical_path, rounds, row_cost

DRAWS = 20


@dataclass(frozen=True, slots=True)
class Shape:
    """An optimiser step.

    Attributes:
        name: Of the experiment.
        rows: How many.
        budget: Tokens of a micro-batch.
        attention: See `rl.learner.rounds.attention_tokens`.
        lengths: Draws the tokens of so many rows.
    """

    name: str
    rows: int
    budget: int
    attention: float
    lengths: Callable[[np.random.Generator, int], np.ndarray]


def _stepwise(
    mean: int, spread: int, least: int, most: int
) -> Callable[[np.random.Generator, int], np.ndarray]:
    def draw(rng: np.random.Generator, count: int) -> np.ndarray:
        prompt = rng.normal(mean, spread, count).clip(least, most)
        return (prompt + rng.lognormal(np.log(120), 0.5, count).clip(20, 512)).astype(int)

    return draw


def _append(rng: np.random.Generator, count: int) -> np.ndarray:
    return 150 + 27 * rng.integers(4, 31, count)


QWEN_1_5B = 1.54e9 / (28 * 1536)
SHAPES = [
    Shape("alfworld_1.5b", 256, 8192, QWEN_1_5B, _stepwise(900, 250, 300, 2048)),
    Shape("alfworld_1.5b", 246, 16384, QWEN_1_5B, _stepwise(900, 250, 300, 2048)),
    Shape("webshop_1.5b", 64, 8192, QWEN_1_5B, _stepwise(2000, 700, 500, 4096)),
    Shape("webshop_1.5b", 61, 16384, QWEN_1_5B, _stepwise(2000, 700, 500, 4096)),
    Shape("alfworld_cpu", 128, 4096, 0.9e6 / (4 * 128), _append),
]


def padded(lengths: Sequence[int], budget: int, ranks: int) -> list[Round]:
    """Rows by length, cut where the next would not fit with padding, dealt to the ranks in that order."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches: list[list[int]] = []
    for i in order:
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= budget:
            batches[-1].append(i)
        else:
            batches.append([i])
    batches += [[]] * (-len(batches) % ranks)
    return [batches[k : k + ranks] for k in range(0, len(batches), ranks)]


def padded_path(dealt: Sequence[Round], lengths: Sequence[int], attention: float) -> float:
    """`critical_path` where every row is as long as its micro-batch's longest."""
    longest = [max((lengths[i] for i in batch), default=0) for one in dealt for batch in one]
    costs = iter(
        len(b) * row_cost(m, attention)
        for b, m in zip((b for one in dealt for b in one), longest, strict=True)
    )
    return sum(max(next(costs) for _ in one) for one in dealt)


def ratios(shape: Shape, ranks: int) -> tuple[list[float], list[float]]:
    """Critical path over ideal of each draw: as it is dealt, and padded in the old order."""
    now, before = [], []
    for seed in range(DRAWS):
        lengths = shape.lengths(np.random.default_rng(seed), shape.rows).tolist()
        ideal = sum(row_cost(length, shape.attention) for length in lengths) / ranks
        dealt = rounds(lengths, shape.budget, ranks, shape.attention)
        now.append(critical_path(dealt, lengths, shape.attention) / ideal)
        old = padded(lengths, shape.budget, ranks)
        before.append(padded_path(old, lengths, shape.attention) / ideal)
    return now, before


def main() -> None:
    """Prints a line per size and number of ranks."""
    print(f"{'':28}{'rows':>5}{'budget':>8}{'ranks':>6}{'mean':>8}{'worst':>8}{'padded before':>15}")
    for shape in SHAPES:
        for ranks in (1, 2, 4, 8):
            now, before = ratios(shape, ranks)
            print(
                f"{shape.name:28}{shape.rows:5}{shape.budget:8}{ranks:6}{np.mean(now):8.4f}{max(now):8.4f}"
                f"{np.mean(before):15.3f}"
            )


if __name__ == "__main__":
    main()
