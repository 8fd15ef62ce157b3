"""Nouns of titles: kept with the model they come from, and found by spaCy where that is installed."""

from __future__ import annotations

import json
import sys

import pytest

from envs.webshop.nouns import MODELS, Nouns, load_nouns, tag
from envs.webshop.product import ShopError

NOUNS = Nouns("tagger", "2.0", {"Oak Lamp": ("oak", "lamp"), "Lämpchen ★": ()})


@pytest.mark.parametrize("name", ["nouns.json", "nouns.json.gz"])
def test_a_file_keeps_them(tmp_path, name):
    NOUNS.save(tmp_path / name)
    read = load_nouns(tmp_path / name)
    assert read == NOUNS
    assert read.source == "tagger 2.0"
    assert read.of("Oak Lamp") == ("oak", "lamp")
    first = (tmp_path / name).read_bytes()
    NOUNS.save(tmp_path / name)
    assert (tmp_path / name).read_bytes() == first


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[]", "is no file of nouns: its format is not 'webshop nouns 1'"),
        ('{"format": "webshop nouns 0"}', "is no file of nouns"),
        ('{"format": "webshop nouns 1", "model": "m", "version": "1"}', "damaged file of nouns: 'nouns'"),
        ('{"format": "webshop nouns 1", "model": "m", "version": "1", "nouns": []}', "damaged file of nouns"),
        ('{"format": "webshop nouns 1", "model": "m", "version": "1", "nouns": {"a": 1}}', "damaged file"),
        ("{", r"\(nouns\) is damaged"),
    ],
)
def test_other_files_are_refused(tmp_path, body, message):
    path = tmp_path / "nouns.json"
    path.write_text(body)
    with pytest.raises(ShopError, match=f"nouns.json'.*{message}"):
        load_nouns(path)


def test_without_the_tagger_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ShopError, match="spaCy .* not installed.*pip install spacy==.*--nouns"):
        tag(["Oak Lamp"])


def test_without_the_model_the_error_says_how_to_get_it():
    pytest.importorskip("spacy")
    with pytest.raises(ShopError, match="no_such_model; neither is installed. Install the tagger"):
        tag(["Oak Lamp"], models=("no_such_model",))


class Token:
    def __init__(self, text, pos):
        self.text, self.pos_ = text, pos


class Tagger:
    """Stands in for spaCy: capitalised words are proper nouns, others adjectives."""

    meta = {"version": "9.9"}
    pipe_names = ("tok2vec", "tagger", "parser", "attribute_ruler", "ner")

    def select_pipes(self, enable):
        assert enable == ["tok2vec", "tagger", "attribute_ruler"]
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def pipe(self, titles):
        self.asked = list(titles)
        for title in self.asked:
            yield [
                Token(w, "PROPN" if w.istitle() else "NOUN" if w.isupper() else "ADJ") for w in title.split()
            ]


def test_what_is_asked_of_the_tagger(monkeypatch):
    tagger = Tagger()

    class Spacy:
        class util:
            is_package = staticmethod(lambda name: name == MODELS[1])

        @staticmethod
        def load(name):
            assert name == MODELS[1]
            return tagger

    monkeypatch.setitem(sys.modules, "spacy", Spacy)
    found = tag(["Oak small LAMP Oak", "bright", "Oak small LAMP Oak"])
    assert found.source == f"spaCy {MODELS[1]} 9.9"
    assert found.by_title == {"Oak small LAMP Oak": ("oak", "lamp", "oak"), "bright": ()}
    assert tagger.asked == ["Oak small LAMP Oak", "bright"]


def test_nouns_are_those_of_the_published_environment(shared):
    spacy = pytest.importorskip("spacy")
    if not any(spacy.util.is_package(name) for name in MODELS):
        pytest.skip(f"no spaCy model: {' or '.join(MODELS)}")
    cases = json.loads((shared / "golden" / "webshop" / "golden_rewards.json").read_text())["cases"]
    expected = {
        case["goal"]["name"]: tuple(case["goal_nouns"]) for case in cases if case["goal_nouns"] is not None
    }
    assert tag(expected).by_title == expected
