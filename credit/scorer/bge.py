"""A frozen cross-encoder that reads both texts at once: SCPO's scorer, bge-reranker-v2-m3 by default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from configs.params import did_you_mean
from credit.scorer.models import Model, check_source, itself, loading, need, place

IDENTICAL = ("score", "one")
MAX_LENGTH = 512
"""Longest pair in tokens, where nobody says."""


class Scorer(Model):
    """sigmoid(logit(first, second)), the first text as the query, the second as the passage.

    FlagEmbedding loads the model and its tokenizer. The forward pass is ours, since its `compute_score` runs
    the first batch twice and takes any error of the model for a lack of memory; a test compares the two.

    A cross-encoder gives a text with itself a high score, but not 1 nor always its highest. So identical
    texts are scored like any others (`identical: score`). `identical: one` defines them to score 1, which
    moves credits a little, and lets SCPO do without many pairs (see `credit.parts.matching`).

    The longer of two texts loses its beginning when the pair has more than `max_length` tokens: the end of
    an observation and the action are what a step is about. FlagEmbedding cuts the passage's end.
    """

    def __init__(
        self,
        model: str = "BAAI/bge-reranker-v2-m3",
        device: str = "auto",
        precision: str = "auto",
        max_length: int = MAX_LENGTH,
        identical: str = "score",
    ) -> None:
        """Loads the model.

        Args:
            model: folder of a saved sequence classifier with one output, or its name on the hub.
            device: auto, cpu, cuda, cuda:1, …
            precision: auto (float16 on a GPU, else float32), float32 or float16.
            max_length: longest pair in tokens.
            identical: what a text scores with itself: score (as the model says) or one.

        Raises:
            ImportError: FlagEmbedding or torch is missing.
            ValueError: a value that is not allowed, no such model, or a model of another kind.
        """
        if identical not in IDENTICAL:
            raise ValueError(
                f"credit.scorer.bge.identical: got {identical!r}{did_you_mean(str(identical), IDENTICAL)}"
            )
        source = check_source("bge", model)
        device, precision = place("bge", device, precision)
        network, tokenizer = load(source, device, precision)
        kinds = network.config.architectures or []
        if network.config.num_labels != 1 or not any("SequenceClassification" in kind for kind in kinds):
            raise ValueError(
                f"credit.scorer.bge.model: {source} is {', '.join(kinds) or 'of no named kind'} with "
                f"{network.config.num_labels} outputs, expected a sequence classifier with one (a reranker); "
                "for a sentence encoder use scorer.name=embed"
            )
        super().__init__("bge", network, tokenizer, device, precision, max_length)
        self.canonical = itself if identical == "one" else None

    def lengths(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """int [len(pairs)]; see `ModelScorer`."""
        first, second = (self.counts([pair[side] for pair in pairs]) for side in (0, 1))
        return np.minimum(first + second + self.specials(pair=True), self.max_length)

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """float [len(pairs)]; see `ModelScorer`."""
        output, _ = self.run([first for first, _ in pairs], [second for _, second in pairs])
        logits = output.logits.reshape(-1).double().cpu().numpy()
        return 1.0 / (1.0 + np.exp(-logits))


def load(source: str, device: str, precision: str) -> tuple[Any, Any]:
    """The network and its tokenizer, through FlagEmbedding.

    Raises:
        ImportError: it is missing.
        ValueError: no model there.
    """
    flag = need("FlagEmbedding", "bge")
    with loading("bge", source):
        reranker = flag.FlagReranker(source, use_fp16=precision == "float16", devices=device)
    return reranker.model, reranker.tokenizer
