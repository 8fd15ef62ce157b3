"""The alarms of a run (`rl.tracking.alarms`), read from its folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

FILE = "alarms.jsonl"


@dataclass(frozen=True)
class Raised:
    """An alarm that was raised.

    Attributes:
        name: Of the alarm.
        text: The number, the likely cause and what to do.
        since: Update that raised it.
        until: Update that ended it; None while it holds.
    """

    name: str
    text: str
    since: int
    until: int | None = None


def read_alarms(run_dir: Path) -> list[Raised]:
    """Returns what a run has raised: what still holds, then the rest, newest first."""
    path = run_dir / FILE
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]  # a run in progress may end in half a line
    held: dict[str, Raised] = {}
    ended: list[Raised] = []
    for line in whole.splitlines():
        event = json.loads(line)
        name, update = event["alarm"], event["update"]
        if event["raised"]:
            held[name] = Raised(name, event["text"], update)
        elif name in held:
            raised = held.pop(name)
            ended.append(Raised(name, raised.text, raised.since, update))
    return [*held.values(), *reversed(ended)]
