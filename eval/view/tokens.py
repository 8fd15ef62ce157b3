"""Recorded token ids as text: the prompt as it was sent, and the response token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from eval.runfolder import RunFolder

LEARNER = "logp_now"
"""Column with the learner's log-probabilities of the sampled tokens, where a run records them."""


@dataclass(frozen=True, slots=True)
class Token:
    """A sampled token.

    Attributes:
        text: Its own text.
        logp: Log-probability when sampled, nats.
        gap: What the learner says less what the sampler said, nats; None if the run does not record it.
    """

    text: str
    logp: float
    gap: float | None


def tokenizer_of(run: RunFolder) -> Tokenizer | None:
    """Returns the run's tokenizer, from its newest checkpoint or starting policy; None if neither is here."""
    checkpoints = sorted((run.path / "checkpoints").glob("*/tokenizer.json"))
    start = Path(str(run.get("model.path"))) / "tokenizer.json"
    for path in (*reversed(checkpoints), start):
        if path.is_file():
            return _load(path, path.stat().st_mtime_ns)
    return None


@lru_cache(maxsize=4)
def _load(path: Path, _: int) -> Tokenizer:
    return Tokenizer.from_file(str(path))


def prompt_ids(rows: Sequence[Mapping[str, Any]], at: int) -> list[int]:
    """Returns what the policy read at step `at`: all since the last fresh prompt, its own responses included.

    Args:
        rows: Steps of one trajectory in order, with `prompt_ids`, `response_ids` and `fresh`.
        at: Position in `rows`.
    """
    first = max(i for i in range(at + 1) if rows[i]["fresh"] or i == 0)
    before = [[*row["prompt_ids"], *row["response_ids"]] for row in rows[first:at]]
    return [token for part in (*before, rows[at]["prompt_ids"]) for token in part]


def response_tokens(row: Mapping[str, Any], tokenizer: Tokenizer | None) -> list[Token]:
    """Returns the sampled tokens of a step; without a tokenizer their text is their id."""
    learner = row.get(LEARNER) or [None] * len(row["response_ids"])
    return [
        Token(
            f"⟨{token}⟩" if tokenizer is None else tokenizer.decode([token], skip_special_tokens=False),
            logp,
            None if now is None else now - logp,
        )
        for token, logp, now in zip(row["response_ids"], row["logp_sampled"], learner, strict=True)
    ]
