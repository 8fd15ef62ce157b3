"""The live panel and the lines: tokens per second, success, time left and where the time went."""

import io

import pytest
from rich.console import Console

from rl.tracking import progress as module
from rl.tracking.progress import ProgressPanel

METRICS = {
    "rollout/success": 0.25,
    "time/update": 10.0,
    "time/rollout": 6.0,
    "time/credit": 1.0,
    "time/learner": 2.0,
}


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until told."""
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return now


def played(clock, console):
    """Update 3 of 12 took 10 s; 4 s into update 4, 800 tokens are sampled."""
    progress = ProgressPanel(12, 16, console)
    progress.stage(3, "rollout")
    clock[0] += 10
    progress.line(3, METRICS)
    progress.stage(4, "rollout")
    clock[0] += 4
    progress.trajectories(5, 800)
    return progress


def test_the_panel_on_a_terminal(clock):
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    progress = played(clock, console)
    with console.capture() as captured:
        console.print(progress._panel())
    progress.close()
    shown = captured.get()
    assert "update 4/12" in shown and "success 25%" in shown
    assert "2min left" in shown  # 10 s per update, nine to go
    assert "5/16 trajectories" in shown and "200 tokens/s" in shown
    for phase in ("rollout", "6.0 s  60%", "credit", "1.0 s  10%", "learner", "2.0 s  20%", "other"):
        assert phase in shown


def kl_column(console):
    """(heading, value) of the KL in every line printed, in order."""
    found, heading, at = [], "", 0
    for line in console.file.getvalue().splitlines():
        if "update" in line:
            (heading,) = (word for word in line.split() if word.startswith("KL"))
            at = line.index(heading) + len(heading)
        else:
            found.append((heading, line[:at].split()[-1]))
    return found


def test_the_kl_shown_is_the_one_that_moves():
    """Without a reference that of the update; with one that to it, also where an update has none to show."""
    moved, both = {"train/kl_sampled": 9e-9, "train/kl_moved": 2e-3}, {"train/kl_ref": 3e-2}
    for series, expected in (
        ([moved, moved], [("KL-moved", "2.0e-03")] * 2),
        ([moved | both, moved], [("KL-ref", "3.0e-02"), ("KL-ref", "–")]),
        ([moved, moved | both], [("KL-moved", "2.0e-03"), ("KL-ref", "3.0e-02")]),
        ([moved | {"train/kl_ref": 0.0}], [("KL-ref", "0.0e+00")]),
    ):
        console = Console(file=io.StringIO(), width=200)
        progress = ProgressPanel(12, 16, console)
        for update, metrics in enumerate(series, start=1):
            progress.line(update, metrics)
        assert kl_column(console) == expected


def test_lines_where_there_is_no_terminal(clock):
    console = Console(file=io.StringIO(), width=200)
    progress = played(clock, console)
    progress.close()
    header, line = console.file.getvalue().splitlines()
    cells = line.split()
    assert cells[0] == "3/12" and cells[-2:] == ["2min", "6.0/1.0/2.0/1.0"]
    assert header.split().index("left") == len(cells) - 2
    assert "\x1b" not in console.file.getvalue()
