"""Porter's stemmer with its author's later changes, as Lucene applies it to English.

M. F. Porter, "An algorithm for suffix stripping", Program 14 (3), 1980. Departures from the paper, all by
its author in his own program: words of one or two letters stay, `-bli` → `-ble` (the paper: `-abli` →
`-able`), and `-logi` → `-log` is added. As in Lucene, any character but a, e, i, o, u and a y after a
consonant counts as a consonant, so digits and foreign letters do.
"""

from __future__ import annotations

from functools import lru_cache

# Suffix → replacement. Of the suffixes a word ends with, the first of its list counts, and then the rest of
# the step is over whether or not the condition holds. Longer ones stand before those they end with.
_STEP_2 = {
    "ational": "ate",
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "izer": "ize",
    "bli": "ble",
    "alli": "al",
    "entli": "ent",
    "eli": "e",
    "ousli": "ous",
    "ization": "ize",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "iveness": "ive",
    "fulness": "ful",
    "ousness": "ous",
    "aliti": "al",
    "iviti": "ive",
    "biliti": "ble",
    "logi": "log",
}
_STEP_3 = {
    "icate": "ic",
    "ative": "",
    "alize": "al",
    "iciti": "ic",
    "ical": "ic",
    "ful": "",
    "ness": "",
}
_STEP_4 = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent"),
    *("sion", "tion", "ou", "ism", "ate", "iti", "ous", "ive", "ize"),
)


def _shape(word: str) -> str:
    """Returns `c` for each consonant of a word and `v` for each vowel."""
    shape: list[str] = []
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape and shape[-1] == "c")
        shape.append("v" if vowel else "c")
    return "".join(shape)


def _measure(stem: str) -> int:
    """Returns m of the paper: how often a consonant follows a vowel."""
    return _shape(stem).count("vc")


def _has_vowel(stem: str) -> bool:
    return "v" in _shape(stem)


def _doubled(stem: str) -> bool:
    """*d of the paper: ends in two equal consonants."""
    return len(stem) > 1 and stem[-1] == stem[-2] and _shape(stem)[-1] == "c"


def _short(stem: str) -> bool:
    """*o of the paper: ends consonant, vowel, consonant, and the last is not w, x or y."""
    return _shape(stem)[-3:] == "cvc" and stem[-1] not in "wxy"


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Returns the stem of a lower-case word; a word of at most two letters is its own."""
    if len(word) <= 2:
        return word
    word = _participle(_plural(word))
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    for step in (_STEP_2, _STEP_3):
        word = _replace(word, step)
    return _final(_strip(word))


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _participle(word: str) -> str:
    """Step 1b: -eed, -ed and -ing, and what is mended after the last two."""
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            return _mended(rest) if _has_vowel(rest) else word
    return word


def _mended(rest: str) -> str:
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if _doubled(rest):
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _short(rest) else rest


def _replace(word: str, step: dict[str, str]) -> str:
    """Steps 2 and 3."""
    for suffix, new in step.items():
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            return rest + new if _measure(rest) > 0 else word
    return word


def _strip(word: str) -> str:
    """Step 4."""
    for suffix in _STEP_4:
        if word.endswith(suffix):
            kept = word[:-3] if suffix in ("sion", "tion") else word[: -len(suffix)]
            return kept if _measure(kept) > 1 else word
    return word


def _final(word: str) -> str:
    """Step 5: a last e, and one l of two."""
    measure = _measure(word)
    if word.endswith("e") and (measure > 1 or (measure == 1 and not _short(word[:-1]))):
        word = word[:-1]
    return word[:-1] if word.endswith("ll") and measure > 1 else word
