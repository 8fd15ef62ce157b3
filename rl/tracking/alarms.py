"""A run that learns nothing says so: named alarms over the metrics of its last updates.

An alarm is raised when its condition has held in `UPDATES` updates in a row, and ends with the first in which
it does not. Both follow from the metric records alone, so a resumed run comes to the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from credit.pipeline import ACTIVITY
from rl.rows.privileged import PRIVILEGED
from rl.tracking.tracker import Record

FILE = "alarms.jsonl"
UPDATES = 5
"""In a row, before an alarm is raised."""

FEW_VALID = 0.05
NO_EFFECT = 1e-3  # of a stage's activity, a share or a mean size
STILL = 1e-4  # share of weights; rounded to bfloat16, lr 1e-6 changes about 1 % of them an update
TIGHT = 0.1  # what clipping leaves of a gradient


@dataclass(frozen=True, slots=True)
class Alarm:
    """One way to learn nothing.

    Attributes:
        name: In the record of alarms.
        holds: Whether a record is of that kind; False where it lacks the metrics.
        says: The number, the likely cause and what to do, of the newest record.
    """

    name: str
    holds: Callable[[Record], bool]
    says: Callable[[Record], str]


@dataclass(frozen=True, slots=True)
class Event:
    """An alarm raised or ended by an update; `text` is empty where it ended."""

    update: int
    alarm: str
    raised: bool
    text: str


def _unanswered(record: Record) -> bool:
    return record.get("rollout/success") == 0 and record.get("rollout/valid", 1.0) < FEW_VALID


def _flat(record: Record) -> bool:
    """No group tells its members apart; a search compares answers, not trajectories."""
    return record.get("rollout/flat_groups") == 1 and "search/rounds" not in record


def _flat_text(record: Record) -> str:
    success = record.get("rollout/success", 0.0)
    if success == 0:
        cause = "every attempt fails: easier tasks, more steps (env.max_steps) or a better starting policy"
    elif success == 1:
        cause = "every attempt succeeds: nothing is left to learn from these tasks, harder ones are needed"
    else:
        cause = "members of a group do the same: a higher rollout.temperature or rollout.group_size"
    return (
        f"no group's attempts differ in return (success {success:.0%}), so outcomes give no gradient; {cause}"
    )


def _no_teacher(column: str) -> Alarm:
    def says(record: Record) -> str:
        rows = record.get(f"probe/{column}/no_room", 0.0)
        cause = (
            f"it does not fit the window ({rows:.0f} rows): raise probes.window"
            if rows
            else "no group has another success to read: the method is its base until some have"
        )
        return f"the teacher ({column}) had no text to read for any token; {cause}"

    return Alarm(f"no_teacher/{column}", lambda record: record.get(f"probe/{column}/without") == 1, says)


def _no_effect(stage: str, metric: str, meaning: str) -> Alarm:
    def holds(record: Record) -> bool:
        return record.get(metric, 1.0) < NO_EFFECT and not _flat(record)

    def says(record: Record) -> str:
        return (
            f"credit.{stage} does next to nothing ({metric} {record[metric]:.2g}, {meaning}): the run is as "
            "one without it; its thresholds may be out of reach of what it compares, see its options"
        )

    return Alarm(f"no_effect/{stage}", holds, says)


ALARMS = (
    Alarm(
        "no_valid_action",
        _unanswered,
        lambda record: (
            f"no success, and {record['rollout/valid']:.1%} of the steps are valid: the policy does not give "
            "actions in the form asked for; prompt.template may not fit the model, or responses are cut "
            f"({record.get('rollout/cut_responses', 0.0):.0%} of them, prompt.max_response_tokens)"
        ),
    ),
    Alarm("no_contrast", lambda record: _flat(record) and not _unanswered(record), _flat_text),
    *(_no_teacher(column) for column in PRIVILEGED),
    *(_no_effect(stage, metric, meaning) for stage, (metric, meaning) in ACTIVITY.items()),
    Alarm(
        "no_change",
        lambda record: record.get("train/weights_changed", 1.0) < STILL and not _flat(record),
        lambda record: (
            f"updates change {record['train/weights_changed']:.2%} of the weights the policy samples with "
            f"({record.get('train/optimizer_steps', 0.0):.0f} optimiser steps, lr "
            f"{record.get('train/lr', 0.0):.2g}): train.lr is too small for their type, or nothing has a "
            "gradient (train/skipped_rows)"
        ),
    ),
    Alarm(
        "clipped",
        lambda record: record.get("train/grad_scale", 1.0) < TIGHT,
        lambda record: (
            f"clipping leaves {record['train/grad_scale']:.1%} of the gradient (norm "
            f"{record['train/grad_norm']:.3g}): every gradient counts the same, however much it has to say; "
            "look at train.aggregation and the size of advantages (credit/advantage_abs_max), or raise "
            "train.grad_clip"
        ),
    ),
)


def events(records: Sequence[Record]) -> list[Event]:
    """What the newest record raises or ends.

    Args:
        records: Of the run's last updates, in order; `UPDATES` + 1 of them decide.
    """
    recent = records[-UPDATES - 1 :]
    newest, update = recent[-1], int(recent[-1]["update"])
    found = []
    for alarm in ALARMS:
        held = [alarm.holds(record) for record in recent]
        if held[-UPDATES:] == [True] * UPDATES and held != [True] * (UPDATES + 1):
            text = f"for {UPDATES} updates: {alarm.says(newest)}"
            found.append(Event(update, alarm.name, True, text))
        elif held == [True] * UPDATES + [False]:
            found.append(Event(update, alarm.name, False, ""))
    return found


class AlarmLog:
    """Writes `alarms.jsonl`, one event a line, and says what is raised; a `rl.tracking.tracker.Mirror`."""

    def __init__(self, run_dir: Path, say: Callable[[str], None]) -> None:
        """Writes nothing yet.

        Args:
            run_dir: The run folder.
            say: Gets a line for every alarm raised.
        """
        self._path, self._say = run_dir / FILE, say
        self._recent: list[Record] = []

    def begin(self, kept: Sequence[Record], resume_update: int | None) -> None:
        """Writes the events of the records that stay anew, without a word."""
        self._path.unlink(missing_ok=True)
        for record in kept:
            self._write(self._next(record))

    def log(self, record: Record) -> None:
        """Writes and says what a record raises."""
        found = self._next(record)
        self._write(found)
        for event in found:
            if event.raised:
                self._say(f"warning: {event.text}")

    def close(self) -> None:
        """Has nothing to finish."""

    def _next(self, record: Record) -> list[Event]:
        if "rollout/success" not in record:  # of an evaluation alone
            return []
        self._recent = [*self._recent[-UPDATES:], record]
        return events(self._recent)

    def _write(self, found: Sequence[Event]) -> None:
        if found:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(event), ensure_ascii=False) + "\n" for event in found)
