"""What scorers with a model share: finding, naming and running it. Importing this file imports no torch."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

TEXTS_REMEMBERED = 200_000


def itself(text: str) -> str:
    """The canonical form of a text where any difference counts."""
    return text


def need(module: str, scorer: str) -> Any:
    """The module, imported.

    Raises:
        ImportError: it is missing or broken; the message says how to get it.
    """
    try:
        return importlib.import_module(module)
    except Exception as error:  # packages built for another torch fail with RuntimeError or OSError as well
        reason = (str(error).splitlines() or [""])[0]
        raise ImportError(
            f"credit.scorer.{scorer} needs {module}, which cannot be imported "
            f"({type(error).__name__}: {reason}); run `make setup-scorer`"
        ) from error


class Model:
    """A frozen encoder with its tokenizer.

    Attributes:
        tokens_read: see `ModelScorer`.
        tokens_padded: see `ModelScorer`.
    """

    def __init__(
        self, scorer: str, network: Any, tokenizer: Any, device: str, precision: str, max_length: int
    ) -> None:
        """Takes what was loaded; see `place` for `device` and `precision`.

        Args:
            scorer: name of the scorer, for messages and the identity.
            network: a transformers model.
            tokenizer: its tokenizer.
            device: a torch device.
            precision: float32 or float16.
            max_length: longest input in tokens, specials included; longer texts lose their beginning.
        """
        torch = need("torch", scorer)
        self.scorer, self.max_length, self.device, self.tokenizer = scorer, max_length, device, tokenizer
        self.tokenizer.truncation_side = "left"
        self.network = network.to(device=device, dtype=getattr(torch, precision)).eval()
        self.tokens_read = self.tokens_padded = 0
        self._counts: dict[str, int] = {}

    @cached_property
    def identity(self) -> str:
        """Scorer, longest input, and a checksum of tokenizer and weights as they are computed with."""
        torch = need("torch", self.scorer)
        digest = sha256(self.tokenizer.backend_tokenizer.to_str().encode())
        for name, weight in sorted(self.network.state_dict().items()):
            digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
            digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return f"{self.scorer}/1 max_length={self.max_length} sha256={digest.hexdigest()}"

    def counts(self, texts: Sequence[str]) -> np.ndarray:
        """int [len(texts)]: tokens of each text, without special ones and uncut."""
        fresh = [text for text in dict.fromkeys(texts) if text not in self._counts]
        if len(self._counts) + len(fresh) > TEXTS_REMEMBERED:
            self._counts, fresh = {}, list(dict.fromkeys(texts))
        if fresh:
            ids = self.tokenizer(fresh, add_special_tokens=False, verbose=False)["input_ids"]
            self._counts |= zip(fresh, map(len, ids), strict=True)
        return np.array([self._counts[text] for text in texts], dtype=np.int64)

    def specials(self, pair: bool) -> int:
        """Special tokens around a text, or around and between two."""
        return self.tokenizer.num_special_tokens_to_add(pair=pair)

    def run(self, *texts: Sequence[str]) -> tuple[Any, Any]:
        """One padded forward pass of texts, or of pairs (two equally long lists).

        Returns:
            The network's output and the attention mask [B, L].
        """
        torch = need("torch", self.scorer)
        inputs = self.tokenizer(
            *map(list, texts),
            padding=True,
            truncation="longest_first",
            max_length=self.max_length,
            return_tensors="pt",
        ).to(self.device)
        mask = inputs["attention_mask"]
        read = int(mask.sum())
        self.tokens_read += read
        self.tokens_padded += mask.numel() - read
        with torch.inference_mode():
            return self.network(**inputs), mask


def place(scorer: str, device: str, precision: str) -> tuple[str, str]:
    """The torch device and precision meant; `auto` is the GPU if there is one, and float16 there.

    Raises:
        ValueError: an unknown precision, or float16 on a CPU, which computes it slowly if at all.
    """
    if device == "auto":
        device = "cuda" if need("torch", scorer).cuda.is_available() else "cpu"
    if precision == "auto":
        precision = "float32" if device == "cpu" else "float16"
    if precision not in ("float32", "float16") or (device == "cpu" and precision == "float16"):
        raise ValueError(
            f"credit.scorer.{scorer}.precision: got {precision!r} on {device}, expected auto, float32 or "
            "(on a GPU) float16"
        )
    return device, precision


def check_source(scorer: str, model: str) -> str:
    """`model`, expanded if it is a folder; a hub name is left as it is.

    Raises:
        ValueError: it looks like a folder, and there is no model in it.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ValueError(
                f"credit.scorer.{scorer}.model: no config.json in {path}, expected a saved model"
            )
        return str(path)
    if model.startswith((".", "~", os.sep)) or model.count("/") != 1:
        raise ValueError(
            f"credit.scorer.{scorer}.model: no folder {path}; expected a folder with a saved model, or its "
            "name on the hub (owner/name)"
        )
    return model


@contextmanager
def loading(scorer: str, model: str) -> Iterator[None]:
    """Around the loading of a model: one that cannot be read is a ValueError that says what to do."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(
            f"credit.scorer.{scorer}.model: {model!r} cannot be loaded ({type(error).__name__}: {reason}); "
            "without a network give the folder of a saved model"
        ) from error
