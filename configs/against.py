"""`run.py show … --against`: compares an experiment with a protocol or another experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from configs.load import Loaded, experiments, load
from configs.protocol import FOLDER, Protocol, protocols, read_protocol
from configs.show import Docs, Row, as_typed, rows
from configs.text import ConfigError, suggest

_PREFIX = f"{FOLDER.name}/"
_LABELS = {"name", "protocol", "credit.settings"}  # not compared; the options that they set are


class Difference(NamedTuple):
    """An option that differs; None where one side does not have it (a stage of another method)."""

    path: str
    ours: Row | None
    theirs: Row | None
    changes: str


def other(experiment: str, overrides: Sequence[str], against: str) -> tuple[Loaded, Protocol | None]:
    """Returns what an experiment is compared with: itself under a protocol, or another experiment.

    Args:
        experiment: As on the command line.
        overrides: Its overrides; a protocol overrides these too.
        against: `protocol/NAME`, or an experiment.

    Raises:
        ConfigError: `against` is neither, or as in `configs.load.load`.
    """
    name = against.removeprefix(_PREFIX).removesuffix(".yaml")
    if against.startswith(_PREFIX):
        protocol = read_protocol(name, "--against")
        return load(experiment, overrides, over={"protocol": name}), protocol
    known = [p.stem for p in experiments()]
    if not against.endswith(".yaml") and against not in known:
        names = [*known, *(f"{_PREFIX}{protocol}" for protocol in protocols())]
        raise ConfigError(
            f"--against {against!r}: neither an experiment nor a protocol{suggest(against, names)} "
            f"There are: {', '.join(names)}, or a path to an experiment's .yaml file."
        )
    return load(against), None


def differences(ours: Loaded, theirs: Loaded, docs: Docs, changes: Mapping[str, str]) -> Iterator[Difference]:
    """Yields the options that differ, in the order of the schema.

    Args:
        ours: One side.
        theirs: The other.
        docs: Options of the credit stages and of the worlds.
        changes: Option → what the other side's value changes; for other options their meaning is given.
    """
    left = {row.path: row for row in rows(ours, docs)}
    right = {row.path: row for row in rows(theirs, docs)}
    for path in dict.fromkeys([*left, *right]):
        one, two = left.get(path), right.get(path)
        same = one is not None and two is not None and one.value == two.value
        if not same and path not in _LABELS:
            yield Difference(path, one, two, changes.get(path) or (one or two).meaning)


def show_against(
    ours: Loaded,
    theirs: Loaded,
    against: str,
    protocol: Protocol | None,
    docs: Docs,
    console: Console,
) -> None:
    """Prints what differs, and what `protocol` cannot reproduce."""
    found = list(differences(ours, theirs, docs, protocol.changes if protocol else {}))
    heading = f"{ours.config.name} against {against}"
    console.print(f"{heading} ({protocol.about})" if protocol else heading, markup=False)
    if not found:
        console.print("no option differs")
    else:
        console.print(_table(found))
    for note in theirs.notes:
        console.print(note, markup=False)
    if protocol and protocol.not_reproduced:
        console.print("\nWhat no option brings:")
        for line in protocol.not_reproduced:
            console.print(f"- {line}", markup=False)


def _table(found: Sequence[Difference]) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("option", no_wrap=True)
    for name in ("ours", "theirs"):
        table.add_column(name, overflow="fold", max_width=24)
    table.add_column("ours from", overflow="fold", max_width=30)
    table.add_column("theirs from", overflow="fold", max_width=30)
    table.add_column("what theirs changes", overflow="fold")
    last = ""
    for path, ours, theirs, changes in found:
        cells = ["–" if row is None else as_typed(row.value) for row in (ours, theirs)]
        places = ["–" if row is None else row.source for row in (ours, theirs)]
        table.add_row(path, *cells, *places, "″" if changes == last else changes)
        last = changes
    return table
