"""`run.py plan --tune`: what it prints fits, and nothing that fits is faster."""

import re
import sys
from itertools import product

import pytest

import run as cli
from commands import gpu_tune
from commands.gpu_cards import CARDS
from commands.gpu_memory import CARD, GIB, memory_of
from commands.gpu_time import Lengths, phases
from configs.load import load

BUDGET = int(CARD * GIB)
H100 = CARDS["h100"]


def tuned(name, ranks, *overrides):
    loaded = load(name, overrides)
    return loaded, gpu_tune.settings(loaded, ranks, BUDGET, H100, Lengths())


def seconds_of(loaded, ranks):
    """Seconds where it fits with 5 % to spare, else None."""
    memory = memory_of(loaded, ranks, BUDGET)
    if not memory.fits or max(memory.totals) > 0.95 * BUDGET:
        return None
    return sum(phase.seconds(H100) for phase in phases(loaded, memory, ranks, Lengths()))


@pytest.mark.parametrize(
    ("name", "ranks"), [("alfworld_1.5b", 1), ("alfworld_7b", 4), ("webshop_7b_lora", 2)]
)
def test_the_fastest_is_the_minimum_over_all(name, ranks):
    """Enumerated by overrides, so the search's own way to change options is tested too."""
    _, found = tuned(name, ranks, "generator.memory=0.4")
    every = []
    references = ("gpu",) if name.endswith("lora") else ("gpu", "cpu")
    budgets = [n for n in (4096, 8192, 16384, 32768) if n >= load(name).config.prompt.window]
    for stage, tokens, again, away, reference in product(
        (1, 2, 3), budgets, ("true", "false"), ("true", "false"), references
    ):
        words = [f"train.zero_stage={stage}", f"train.token_budget={tokens}", f"train.offload={away}"]
        words += [f"model.gradient_checkpointing={again}", f"train.reference={reference}"]
        every.append(seconds_of(load(name, [*words, "generator.memory=0.4"]), ranks))
    fixed = [setting for setting in found if setting.options["generator.memory"] == 0.4]
    fitting = [seconds for seconds in every if seconds is not None]
    assert len(fixed) == len(fitting) > 0
    assert [s.seconds for s in fixed] == pytest.approx(sorted(fitting), abs=1e-3)
    assert found[0].seconds == min(setting.seconds for setting in found) <= min(fitting) + 1e-3


@pytest.mark.parametrize(("name", "ranks"), [("alfworld_1.5b", 4), ("alfworld_7b", 8)])
def test_the_command_printed_fits_and_takes_what_is_said(monkeypatch, capsys, name, ranks):
    monkeypatch.setattr(sys, "argv", ["run.py", "plan", name, "--gpus", str(ranks), "--tune"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    out = capsys.readouterr().out
    assert not caught.value.code and "none was run" in out and "the next best" in out
    (line,) = re.findall(r"run\.py train (.*)", out)
    named, *words = line.split()
    assert named == name and words[:2] == ["--nproc", str(ranks)]
    seconds = seconds_of(load(name, words[2:]), ranks)
    assert f"{seconds:.1f}" in re.search(r"total.*", out)[0]


def test_nothing_that_fits_is_said(monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["run.py", "plan", "alfworld_7b", "--gpus", "1", "--memory", "24", "--tune"]
    )
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 1 and "no setting fits 1 × 24 GiB" in capsys.readouterr().out


def test_the_next_best_differ_in_more_than_the_generators_share():
    loaded, found = tuned("alfworld_1.5b", 4)
    shown = [found[0], *gpu_tune.next_best(found)]
    assert len({setting.learner for setting in shown}) == len(shown) == 6
    assert [s.seconds for s in shown] == sorted(s.seconds for s in shown)
    assert gpu_tune.departures(loaded, {"train.zero_stage": loaded.config.train.zero_stage}) == []
