"""The table of published settings in docs/credit.md."""

from __future__ import annotations

from collections.abc import Iterator

from commands.build.declared import DOCS
from configs.load import Loaded, load
from configs.methods import Published, methods, read_method
from configs.protocol import flat
from configs.show import as_typed, rows

HEADER = ("method", "environment", "published settings", "plain, where it differs", "source")


def published_rows() -> Iterator[tuple[str, ...]]:
    """Yields one row per method and environment with public settings."""
    for name in methods():
        for environment, published in read_method(name).published.items():
            yield _row(name, environment, published)


def _row(name: str, environment: str, published: Published) -> tuple[str, ...]:
    preset = f"{environment}_1.5b"
    plain = _values(load(preset, [f"credit={name}", "credit.settings=plain"]))
    settings, differs = [], []
    for option, value in flat(published.tree).items():
        text = f"`{option}={as_typed(value)}`"
        if plain[option] == value:
            settings.append(text)
        else:
            settings.append(f"**{text}**")
            differs.append(f"`{option}={as_typed(plain[option])}`")
    base = published.label.partition(",")[0].removeprefix("credit/").removesuffix(".yaml")
    of_which = "" if base == name else f"those of `{base}`: "
    return (
        f"`{name}`",
        environment,
        of_which + (", ".join(settings) or "nothing of its own"),
        ", ".join(differs) or "–",
        published.source.replace("@", "\\@"),
    )


def _values(loaded: Loaded) -> dict[str, object]:
    return {row.path: row.value for row in rows(loaded, DOCS)}
