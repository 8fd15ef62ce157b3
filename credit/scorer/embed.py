"""A frozen sentence encoder (bi-encoder): each text is read once, whatever it is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from credit.scorer.around import batches
from credit.scorer.models import TEXTS_REMEMBERED, Model, check_source, itself, loading, need, place

TOKEN_BUDGET = 16384
"""Most padded tokens of one batch of texts."""


class Scorer(Model):
    """(1 + cos(e(first), e(second))) / 2, e the mean of the last layer over a text's tokens.

    Cheaper than a cross-encoder by the number of texts a text is compared with, and coarser: each vector is
    made without knowing the other text. A text compared with itself scores exactly 1, by definition; two
    texts that differ score less. The map from [-1, 1] is linear, so that no order of pairs is lost: a cosine
    of 0.7 is 0.85 here. A text longer than `max_length` tokens loses its beginning.
    """

    def __init__(
        self,
        model: str = "sentence-transformers/all-MiniLM-L6-v2",
        device: str = "auto",
        precision: str = "auto",
        max_length: int = 256,
    ) -> None:
        """Loads the model.

        Args:
            model: folder of a saved encoder, or its name on the hub.
            device: auto, cpu, cuda, cuda:1, …
            precision: auto (float16 on a GPU, else float32), float32 or float16.
            max_length: longest text in tokens.

        Raises:
            ImportError: transformers or torch is missing.
            ValueError: a value that is not allowed, or no such model.
        """
        source = check_source("embed", model)
        device, precision = place("embed", device, precision)
        transformers = need("transformers", "embed")
        with loading("embed", source):
            tokenizer = transformers.AutoTokenizer.from_pretrained(source)
            network = transformers.AutoModel.from_pretrained(source)
        super().__init__("embed", network, tokenizer, device, precision, max_length)
        self.canonical = itself
        self._vectors: dict[str, np.ndarray] = {}

    def lengths(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """int [len(pairs)]; see `ModelScorer`. Both texts count, though each is read once only."""
        return sum(self._lengths([pair[side] for pair in pairs]) for side in (0, 1))

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """float [len(pairs)]; see `ModelScorer`."""
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        vectors = self._encode(texts)
        row = {text: i for i, text in enumerate(texts)}
        first, second = (vectors[[row[pair[side]] for pair in pairs]] for side in (0, 1))
        return np.clip((1.0 + (first * second).sum(axis=1)) / 2.0, 0.0, 1.0)

    def _lengths(self, texts: Sequence[str]) -> np.ndarray:
        return np.minimum(self.counts(texts) + self.specials(pair=False), self.max_length)

    def _encode(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors, float64 [len(texts), D]; known ones are not computed again."""
        if len(self._vectors) + len(texts) > TEXTS_REMEMBERED:
            self._vectors = {}
        fresh = [text for text in texts if text not in self._vectors]
        lengths = self._lengths(fresh)
        order = sorted(range(len(fresh)), key=lambda i: (-lengths[i], fresh[i]))
        for batch in batches(lengths, order, TOKEN_BUDGET):
            some = [fresh[i] for i in batch]
            self._vectors |= zip(some, self._forward(some), strict=True)
        return np.stack([self._vectors[text] for text in texts]).astype(np.float64)

    def _forward(self, texts: Sequence[str]) -> Any:
        output, mask = self.run(texts)
        weight = mask.unsqueeze(-1).float()
        mean = (output.last_hidden_state.float() * weight).sum(1) / weight.sum(1)
        return (mean / mean.norm(dim=1, keepdim=True)).cpu().numpy()
