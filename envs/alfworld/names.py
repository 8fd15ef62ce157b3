"""Display names of objects: `cabinet_bar__minus_00_dot_50…` is shown as "cabinet 3"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

_SPELLED = (("_minus_", "-"), ("_plus_", "+"), ("_dot_", "."), ("_comma_", ","))


def display_names(ids: Sequence[str], init: Iterable[tuple[str, ...]]) -> list[tuple[str, str]]:
    """Numbers the objects that appear in initial facts, as the reference does.

    The class is the part of the id before `_bar_`, with "basin" appended if the id contains it. Among the
    sorted ids of a class the first gets the highest number. An id without `_bar_` is shown as it is (with a
    space after it, as the reference prints it).

    Args:
        ids: All object ids, lower case, sorted.
        init: Initial facts (predicate, object, …).

    Returns:
        (id, name) pairs in the order of `ids`.
    """
    used = {name for fact in init for name in fact[1:] if "_bar_" in name}
    kinds = {name: _kind(name) for name in ids}
    left = Counter(kinds[name] for name in ids if name in used)
    named = []
    for name in ids:
        kind = kinds[name]
        named.append((name, f"{kind} {left[kind] if name in used else ''}"))
        left[kind] -= name in used
    return named


def _kind(name: str) -> str:
    kind, bar, _ = name.partition("_bar_")
    if "_" in kind:
        for spelled, sign in _SPELLED:
            kind = kind.replace(spelled, sign)
    return f"{kind}basin" if bar and "basin" in name else kind
