"""What several attempts at each task say: pass@j, at least one of j succeeds, and pass^j, all j do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from eval.statistics import share_interval


def pass_at(solved: int, attempts: int, j: int) -> float:
    """Returns the unbiased estimate of P(at least one of j attempts at a task succeeds).

    1 − C(n − c, j) / C(n, j) for c of n attempts solved: the share of the j-subsets of the attempts that
    hold a success (Chen et al. 2021, arXiv 2107.03374, equation 1). 1 ≤ j ≤ n.
    """
    return 1.0 - comb(attempts - solved, j) / comb(attempts, j)


def pass_hat(solved: int, attempts: int, j: int) -> float:
    """Returns the unbiased estimate of P(all of j attempts at a task succeed).

    C(c, j) / C(n, j) for c of n attempts solved (pass^j; Yao et al. 2024, arXiv 2406.12045, section 3).
    """
    return comb(solved, j) / comb(attempts, j)


@dataclass(frozen=True, slots=True)
class PassRate:
    """What j attempts achieve, as means over tasks with 95 % intervals clustered by task.

    Attributes:
        j: Attempts.
        at: pass@j.
        at_lo: Lower end of its interval.
        at_hi: Upper end.
        hat: pass^j.
        hat_lo: Lower end of its interval.
        hat_hi: Upper end.
    """

    j: int
    at: float
    at_lo: float
    at_hi: float
    hat: float
    hat_lo: float
    hat_hi: float


def reported(attempts: int) -> tuple[int, ...]:
    """Returns the j that are reported of so many attempts: 2, 4, 8, … and all; none of a single one."""
    powers = [2**i for i in range(1, attempts.bit_length()) if 2**i < attempts]
    return (*powers, attempts) if attempts > 1 else ()


def pass_rates(solved: Sequence[int], attempts: int) -> tuple[PassRate, ...]:
    """Returns pass@j and pass^j for every reported j.

    Args:
        solved: Attempts that succeeded, one number per task (at least one task).
        attempts: At each task.
    """
    rates = []
    for j in reported(attempts):
        at = [pass_at(c, attempts, j) for c in solved]
        hat = [pass_hat(c, attempts, j) for c in solved]
        n = len(solved)
        rates.append(
            PassRate(
                j,
                sum(at) / n,
                *share_interval(at, attempts),
                sum(hat) / n,
                *share_interval(hat, attempts),
            )
        )
    return tuple(rates)
