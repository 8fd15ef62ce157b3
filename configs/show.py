"""`run.py show`: every option of a run with its value, where the value comes from, and its meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from configs.check import DEFAULT, is_section
from configs.layers import COMMAND_LINE
from configs.load import Loaded
from configs.schema import Section

Documented = Callable[[str], Mapping[str, tuple[Any, str]]]


class Docs(NamedTuple):
    """Options that this package cannot know: the caller looks them up.

    Attributes:
        stage: Name of a credit stage → {option: (default, meaning)}.
        world: Name of a world → {option: (default, meaning)}; empty if it declares none.
    """

    stage: Documented
    world: Documented


class Row(NamedTuple):
    """One option."""

    path: str
    value: Any
    source: str
    meaning: str


def rows(loaded: Loaded, docs: Docs) -> Iterator[Row]:
    """Yields every option in the order of the schema; `path` is what the command line takes."""
    yield from _section(loaded, loaded.config, "", docs)


def show(loaded: Loaded, docs: Docs, console: Console, *, changed_only: bool = False) -> None:
    """Prints the options as one table, a blank line between sections.

    Args:
        loaded: What to print.
        docs: Options of the credit stages and of the world.
        console: Where to.
        changed_only: Leave out what is still the default.
    """
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("option", no_wrap=True)
    table.add_column("value", overflow="fold", max_width=28)
    table.add_column("from", no_wrap=True)
    table.add_column("meaning", overflow="fold")
    last = None
    for row in rows(loaded, docs):
        if changed_only and row.source == DEFAULT:
            continue
        section = row.path.partition(".")[0] if "." in row.path else ""
        if last is not None and section != last:
            table.add_row()
        last = section
        style = {DEFAULT: "dim", COMMAND_LINE: "bold green"}.get(row.source, "cyan")
        table.add_row(row.path, as_typed(row.value), f"[{style}]{row.source}[/]", row.meaning)
    console.print(table)
    for note in loaded.notes:
        console.print(note, markup=False)


def _section(loaded: Loaded, section: Section, prefix: str, docs: Docs) -> Iterator[Row]:
    nested = []
    for key, info in type(section).model_fields.items():
        path, value = f"{prefix}{key}", getattr(section, key)
        if is_section(info.annotation):
            nested.append((path, value))
        elif path == "credit.stages":
            yield from _stages(loaded, value, docs.stage)
        elif path == "env.options" and (declared := docs.world(section.name)):
            yield from _declared(loaded, path, value, declared)
        elif path == "credit.name":
            yield Row("credit", value, loaded.source(path), info.description or "")
        elif isinstance(value, Mapping) and value:
            for name, option in value.items():
                yield Row(f"{path}.{name}", option, loaded.source(f"{path}.{name}"), info.description or "")
        else:
            yield Row(path, value, loaded.source(path), info.description or "")
    for path, value in nested:
        yield from _section(loaded, value, f"{path}.", docs)


def _stages(loaded: Loaded, stages: Mapping[str, Mapping[str, Any]], stage_docs: Documented) -> Iterator[Row]:
    for stage, options in stages.items():
        documented = stage_docs(stage)
        if not documented:
            yield Row(f"credit.{stage}", "", loaded.source("credit.name"), "A stage without options.")
        for key, (default, meaning) in documented.items():
            source = loaded.source(f"credit.stages.{stage}.{key}")
            yield Row(f"credit.{stage}.{key}", options.get(key, default), source, meaning)


def _declared(
    loaded: Loaded, prefix: str, options: Mapping[str, Any], declared: Mapping[str, tuple[Any, str]]
) -> Iterator[Row]:
    for key, (default, meaning) in declared.items():
        path = f"{prefix}.{key}"
        yield Row(path, options.get(key, default), loaded.source(path), meaning)


def as_typed(value: Any) -> str:
    """Returns a value as one would type it on the command line (YAML without quotes)."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(list(value)) if isinstance(value, tuple) else str(value)
