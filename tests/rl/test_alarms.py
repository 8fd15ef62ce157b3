"""A run that learns nothing says so: on planted series to the update, and in runs broken on purpose."""

from pathlib import Path

import numpy as np
import pytest

from credit.pipeline import ACTIVITY
from credit.pipeline import METRICS as CREDIT_METRICS
from eval.report.alarms import Raised, read_alarms
from rl.learner.engine import OptimOptions
from rl.learner.loss import LossOptions
from rl.probes.probes import ProbeOptions
from rl.tracking.alarms import ALARMS, FILE, UPDATES, AlarmLog, events
from rl.tracking.tracker import Tracker, read_metrics
from tests.rl.helpers import pretrained_toy, toy_run
from tests.toy import ToyEnv, tiny_model

HEALTHY = {
    "rollout/success": 0.4,
    "rollout/valid": 0.6,
    "rollout/flat_groups": 0.3,
    "rollout/cut_responses": 0.0,
    "probe/logp_peer/without": 0.4,
    "probe/logp_hindsight/without": 0.0,
    "train/weights_changed": 0.01,
    "train/optimizer_steps": 1.0,
    "train/lr": 1e-6,
    "train/grad_norm": 0.5,
    "train/grad_scale": 1.0,
    **{metric: 0.07 for metric, _ in ACTIVITY.values()},
}
# What is wrong → (the alarm, words of its line)
FAULTS = {
    "unanswered": (
        {"rollout/success": 0.0, "rollout/valid": 0.04, "rollout/flat_groups": 1.0},
        ("no_valid_action", "4.0% of the steps are valid"),
    ),
    "all fail": (
        {"rollout/success": 0.0, "rollout/flat_groups": 1.0, "train/weights_changed": 0.0},
        ("no_contrast", "(success 0%), so outcomes give no gradient; every attempt fails"),
    ),
    "all win": (
        {"rollout/success": 1.0, "rollout/flat_groups": 1.0},
        ("no_contrast", "nothing is left to learn"),
    ),
    "all alike": ({"rollout/flat_groups": 1.0}, ("no_contrast", "members of a group do the same")),
    "no peer": ({"probe/logp_peer/without": 1.0}, ("no_teacher/logp_peer", "no group has another success")),
    "no room": (
        {"probe/logp_hindsight/without": 1.0, "probe/logp_hindsight/no_room": 12.0},
        ("no_teacher/logp_hindsight", "window (12 rows): raise probes.window"),
    ),
    "scpo idle": ({"credit/scpo/credited_fraction": 2e-4}, ("no_effect/scpo", "credited_fraction 0.0002")),
    "gigpo idle": (
        {"credit/gigpo/step_abs_mean": 0.0},
        ("no_effect/gigpo", "credit.gigpo does next to nothing"),
    ),
    "still": ({"train/weights_changed": 5e-5}, ("no_change", "1 optimiser steps, lr 1e-06")),
    "clipped": (
        {"train/grad_scale": 0.006, "train/grad_norm": 167.0},
        ("clipped", "clipping leaves 0.6% of the gradient (norm 167)"),
    ),
}


def series(*kinds):
    """Records of updates 1, 2, …, each of a kind in `FAULTS`, or healthy (None)."""
    return [
        {"update": number, **HEALTHY, **(FAULTS[kind][0] if kind else {})}
        for number, kind in enumerate(kinds, start=1)
    ]


def raised(records):
    """(update, alarm) of all alarms raised in a series, record by record."""
    found = [event for n in range(1, len(records) + 1) for event in events(records[max(0, n - 9) : n])]
    return [(event.update, event.alarm) for event in found if event.raised]


@pytest.mark.parametrize("kind", FAULTS)
def test_an_alarm_is_raised_after_so_many_updates_in_a_row_and_not_before(kind):
    alarm, words = FAULTS[kind][1]
    assert raised(series(*[kind] * (UPDATES - 1))) == []
    assert raised(series(*[kind] * (UPDATES + 4))) == [(UPDATES, alarm)]  # once
    assert raised(series(None, *[kind] * UPDATES)) == [(UPDATES + 1, alarm)]
    (event,) = events(series(*[kind] * UPDATES))
    assert words in event.text and event.text.startswith(f"for {UPDATES} updates: ")
    assert "\n" not in event.text


@pytest.mark.parametrize("kind", FAULTS)
def test_one_update_that_recovers_begins_the_count_anew(kind):
    alarm, _ = FAULTS[kind][1]
    assert raised(series(*[kind] * (UPDATES - 1), None, *[kind] * (UPDATES - 1))) == []
    records = series(*[kind] * UPDATES, None, *[kind] * UPDATES)
    assert raised(records) == [(UPDATES, alarm), (2 * UPDATES + 1, alarm)]
    (ended,) = events(records[: UPDATES + 1])
    assert (ended.update, ended.alarm, ended.raised) == (UPDATES + 1, alarm, False)


def test_every_alarm_is_planted_or_is_one_of_a_kind_that_is():
    planted = {alarm.partition("/")[0] for _, (alarm, _) in FAULTS.values()}
    assert {alarm.name.partition("/")[0] for alarm in ALARMS} == planted
    assert len({alarm.name for alarm in ALARMS}) == len(ALARMS)
    page = (Path(__file__).parents[2] / "docs" / "viewer.md").read_text(encoding="utf-8")
    assert all(f"| `{kind}" in page for kind in planted)


def test_one_fault_is_one_line():
    """All attempts fail: then stages have nothing to do and nothing moves, which need not be said too."""
    idle = {metric: 0.0 for metric, _ in ACTIVITY.values()}
    records = [record | idle for record in series(*["all fail"] * UPDATES)]
    assert [event.alarm for event in events(records)] == ["no_contrast"]


def test_a_search_compares_answers_not_trajectories():
    assert raised([record | {"search/rounds": 9.0} for record in series(*["all win"] * UPDATES)]) == []


def test_records_of_earlier_versions_raise_nothing():
    old = [{"update": n, "rollout/success": 0.0, "rollout/mixed_groups": 0.0} for n in range(1, 9)]
    assert raised(old) == []


def test_activities_are_metrics_of_their_stages():
    assert {"scpo", "gigpo"} <= set(ACTIVITY)
    assert all(CREDIT_METRICS[metric] == meaning for metric, meaning in ACTIVITY.values())


def log(run_dir, records, resume_update=None):
    """What is said while the records are logged."""
    said = []
    tracker = Tracker(run_dir, mirrors=[AlarmLog(run_dir, said.append)], resume_update=resume_update)
    for record in records:
        tracker.log(record["update"], {k: v for k, v in record.items() if k != "update"})
    tracker.close()
    return said


def test_a_resumed_run_has_the_same_alarms_as_one_in_one_go(tmp_path):
    """Killed two updates after a checkpoint, before, at and after the alarm: nothing is lost or doubled."""
    kinds = [None, *["clipped"] * 7, None, None]
    records = [{"update": 0, "eval/success": 0.1}, *series(*kinds)]
    whole = log(tmp_path / "whole", records)
    assert len(whole) == 1 and whole[0].startswith("warning: for 5 updates: clipping leaves 0.6%")
    expected = (tmp_path / "whole" / FILE).read_bytes()
    assert len(expected.splitlines()) == 2
    for at in (3, 5, 6, 9):
        run_dir = tmp_path / f"killed-{at}"
        first = log(run_dir, records[: at + 3])
        again = log(run_dir, records[at + 1 :], resume_update=at)
        assert (run_dir / FILE).read_bytes() == expected
        assert len(first) == (at + 2 >= 6) and len(again) == (at < 6)  # said again only where made again


def test_reading_alarms(tmp_path):
    assert read_alarms(tmp_path) == []
    log(tmp_path, series(*["scpo idle"] * 6, None, *["clipped"] * 5))
    with (tmp_path / FILE).open("a") as file:
        file.write('{"update": 12, "ala')  # being written
    first, second = read_alarms(tmp_path)
    assert (first.name, first.since, first.until) == ("clipped", 12, None)
    assert (second.name, second.since, second.until) == ("no_effect/scpo", 5, 7)
    assert isinstance(first, Raised) and "clipping leaves" in first.text


class Blind:
    """A pair scorer that finds nothing alike."""

    canonical = None

    def score(self, pairs):
        return np.zeros(len(pairs))


def untrained():
    toy = pretrained_toy()
    return tiny_model(len(toy.tokenizer), hidden=64, layers=2, intermediate=128)


BROKEN = {
    "no_valid_action": lambda: dict(model=untrained()),
    "no_contrast": lambda: dict(environment=lambda: ToyEnv(max_steps=1)),
    "no_teacher/logp_peer": lambda: dict(
        credit=("returns", "grpo", "sharpo"), probing=ProbeOptions(window=64, token_budget=4096)
    ),
    "no_effect/scpo": lambda: dict(credit=("returns", "scpo", "gigpo"), services={"pair_scorer": Blind()}),
    "no_change": lambda: dict(lr=1e-15),
    "clipped": lambda: dict(optim=OptimOptions(grad_clip=1e-6)),
}


@pytest.mark.parametrize("alarm", BROKEN)
def test_a_run_that_is_broken_says_how(tmp_path, alarm):
    said = []
    toy_run(
        tmp_path,
        updates=UPDATES,
        groups=4,
        group_size=6,
        mirrors=[AlarmLog(tmp_path, said.append)],
        **BROKEN[alarm](),
    )
    assert [(found.name, found.since, found.until) for found in read_alarms(tmp_path)] == [
        (alarm, UPDATES, None)
    ]
    assert len(said) == 1 and said[0].startswith(f"warning: for {UPDATES} updates: ")


@pytest.mark.parametrize("credit", [("returns", "gigpo"), ("returns", "grpo", "stepopsd")])
def test_a_healthy_run_says_nothing(tmp_path, credit):
    said = []
    loss = LossOptions(kl_coef=0.01)
    toy_run(
        tmp_path,
        updates=UPDATES + 1,
        groups=4,
        group_size=6,
        credit=credit,
        loss=loss,
        mirrors=[AlarmLog(tmp_path, said.append)],
    )
    assert said == [] and not (tmp_path / FILE).exists()
    assert all(record["train/weights_changed"] > 0.5 for record in read_metrics(tmp_path / "metrics.jsonl"))
