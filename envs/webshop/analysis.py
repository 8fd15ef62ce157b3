"""From text to search terms: what Lucene's English analysis makes of it.

Words are found by the rules of Unicode annex 29 as Lucene's StandardTokenizer applies them, lose a possessive
`'s`, become lower-case, are dropped if they are among Lucene's 33 stop words, and are stemmed.

Each character is mapped to a letter for its word-break class, from its Unicode category and a few ranges; the
rules are then one regular expression over those letters. Departures, none of which a shop in English shows:
keycaps of `#` and `*`, runs of emoji selectors and modifiers, and what Unicode gained after version 12.1.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from envs.webshop.porter import stem

_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they
this to was will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
LONGEST_WORD = 255  # Lucene's buffer: a longer run is cut there, and the rest is the next word

_POSSESSIVES = ("'s", "’s", "＇s", "'S", "’S", "＇S")

# Class → ranges of code points, looked up in this order before the category. L letter, H Hebrew letter,
# N digit, K katakana, I single signs (Han, hiragana), S scripts without spaces and T their marks, U low
# lines, E emoji, G regional indicators, M skin tones, X what extends the character before, Z the joiner of
# emoji; m joins letters, n digits, b both, ' both (and may end a Hebrew word), " Hebrew letters.
_RANGES = {
    "m": "003A 00B7 0387 05F4 2027 FE13 FE55 FF1A",
    "n": "002C 003B 037E 0589 060C-060D 066C 07F8 2044 FE10 FE14 FE50 FE54 FF0C FF1B",
    "b": "002E 2018-2019 2024 FE52 FF07 FF0E",
    "'": "0027",
    '"': "0022",
    "Z": "200D",
    "o": "200B",
    "X": "200C FF9E-FF9F",
    "M": "1F3FB-1F3FF",
    "G": "1F1E6-1F1FF",
    "U": "202F",
    "N": "066B",
    "H": "05D0-05EA 05EF-05F2 FB1D FB1F-FB28 FB2A-FB4F",
    "K": "3031-3035 309B-309C 30A0-30FA 30FC-30FF 31F0-31FF 32D0-32FE 3300-3357 FF66-FF9D 1B000",
    "I": "2E80-2E99 2E9B-2EF3 2F00-2FD5 3007 3021-3029 3038-303A 3400-4DB5 4E00-9FEF F900-FA6D FA70-FAD9 "
    "20000-2FA1D 3041-3096 309D-309F 1B001-1B11E 1B150-1B152 1F200",
    "S": "0E01-0E3A 0E40-0E4E 0E81-0EBD 0EC0-0ECD 0EDC-0EDF 1000-103F 1050-108F 109A-109F 1780-17D3 17D7 "
    "17DC-17DD 1950-1974 1980-19C9 19DA 19DE-19DF 1A20-1A7C 1AA0-1AAD A9E0-A9EF A9FA-A9FE AA60-AAC2 "
    "AADB-AADF 11700-1172B 1173A-1173B 1173F",
    "E": "00A9 00AE 203C 2049 2122 2194-2199 21A9-21AA 231A-231B 2328 2388 23CF 23E9-23F3 23F8-23FA "
    "25AA-25AB 25B6 25C0 25FB-25FE 2600-2605 2607-2612 2614-2685 2690-2705 2708-2712 2714 2716 271D "
    "2721 2728 2733-2734 2744 2747 274C 274E 2753-2755 2757 2763-2767 2795-2797 27A1 27B0 27BF "
    "2934-2935 2B05-2B07 2B1B-2B1C 2B50 2B55 3030 303D 3297 3299 1F000-1F0FF 1F10D-1F10F 1F12F "
    "1F16C-1F16F 1F18E 1F191-1F19A 1F1AD-1F1E5 1F201-1F20F 1F21A 1F22F 1F232-1F23A 1F23C-1F23F "
    "1F249-1F3FA 1F400-1F53D 1F546-1F64F 1F680-1F6FF 1F774-1F77F 1F7D5-1F7FF 1F80C-1F80F 1F848-1F84F "
    "1F85A-1F85F 1F888-1F88F 1F8AE-1F8FF 1F90C-1F93A 1F93C-1F945 1F947-1FFFD",
    "L": "02C2-02C5 02D2-02D7 02DE-02DF 02ED 02EF-02FF 055B-055C 055E 05F3 24B6-24E9 "
    "A720-A721 A789-A78A AB5B 1F130-1F149 1F150-1F169 1F170-1F189",
}
_CATEGORIES = {
    **dict.fromkeys(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl"), "L"),
    **dict.fromkeys(("Mn", "Me", "Mc", "Cf"), "X"),
    "Nd": "N",
    "Pc": "U",
}


class _Classes(dict[int, str]):
    """Code point → class, filled as characters are met (for `str.translate`)."""

    def __init__(self) -> None:
        super().__init__()
        self._spans = []
        for name, ranges in _RANGES.items():
            for part in ranges.split():
                first, _, last = part.partition("-")
                self._spans.append((int(first, 16), int(last or first, 16), name))

    def __missing__(self, code: int) -> str:
        listed = (name for first, last, name in self._spans if first <= code <= last)
        category = unicodedata.category(chr(code))
        found = next(listed, None) or _CATEGORIES.get(category, "o")
        if found == "S" and category[0] in "MC":
            found = "T" if category[0] == "M" else "o"
        self[code] = found
        return found


def _words_pattern() -> re.Pattern[str]:
    """The grammar; quantifiers are possessive, so that no text takes more than linear time.

    A lower-case name is a character of a class with whatever extends it.
    """
    extended = "[XZMT]*+"
    letter, digit, kana, low = (f"(?:{c}{extended})" for c in ("[LH]", "N", "K", "U"))
    between_letters = f"(?:[mb']{extended}|(?<=H)\"{extended}(?=H))"
    between_digits = f"(?:[nb']{extended})"
    letters = f"{letter}(?:(?:{low}*+|{between_letters}){letter})*+(?:(?<=H)'{extended})?+"
    digits = f"{digit}(?:(?:{low}*+|{between_digits}){digit})*+"
    unit = f"(?:{kana}(?:{low}*+{kana})*+|(?:{digits}|{letters})++)"
    emoji = f"(?:Z*E{extended}|M{extended})"
    rules = (
        f"(?P<word>{low}*+{unit}(?:{low}++{unit})*+{low}*+",
        f"{emoji}(?:(?<=Z){emoji})*+",
        f"G{extended}G{extended}",
        f"(?:[ST]{extended})++",
        f"I{extended})",
        "U++",  # not a word by itself; skipped at once
    )
    return re.compile("|".join(rules))


_CLASSES = _Classes()
_WORDS = _words_pattern()


def words(text: str) -> Iterator[str]:
    """Yields the words of a text as Lucene's StandardTokenizer does, in their own case."""
    classes = text.translate(_CLASSES)
    for match in _WORDS.finditer(classes):
        if not match["word"]:
            continue
        start, end = match.span()
        if end - start <= LONGEST_WORD:
            yield text[start:end]
            continue
        while start < end:
            piece = _WORDS.match(classes, start, min(end, start + LONGEST_WORD))
            if piece and piece["word"]:
                yield text[start : piece.end()]
            start = piece.end() if piece else start + 1  # a joiner that the cut left in front


def terms(text: str) -> list[str]:
    """Returns the search terms of a text in order, with repeats."""
    found = []
    for word in words(text):
        if word.endswith(_POSSESSIVES):
            word = word[:-2]
        word = word.lower()
        if word not in STOP_WORDS:
            found.append(stem(word))
    return found
