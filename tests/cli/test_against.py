"""`run.py show --against`: what it lists, and what it says of names it does not know."""

import re
import sys

import pytest

import run as cli
from commands.build.declared import DOCS
from configs.against import differences, other
from configs.load import load


def command(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["run.py", *words])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code or 0, capsys.readouterr()


def test_show_against_a_protocol_lists_what_differs(monkeypatch, capsys):
    code, printed = command(monkeypatch, capsys, "show", "alfworld_1.5b", "--against", "protocol/verl_agent")
    assert code == 0
    listed = {
        line.split()[0]: line.split()[1:3]
        for line in printed.out.splitlines()
        if re.match(r"(env|prompt|train|credit|eval|rollout)\.", line)
    }
    expected = {
        "env.anchor": ["state", "text"],
        "prompt.parse": ["strict", "papers"],
        "train.entropy_coef": ["0.0", "0.001"],
        "train.mismatch": ["off", "recompute"],
        "credit.gigpo.lone": ["zero", "raw"],
        "credit.gigpo.fp32_reference_compat": ["false", "true"],
    }
    assert {option: listed.pop(option) for option in expected} == expected
    assert set(listed) <= {"eval.tasks"}  # a preset may evaluate on other tasks
    flowing = " ".join(printed.out.split())
    for part in (
        "protocol/recommended.yaml",
        "protocol/verl_agent.yaml",
        "0.83",
        "Prompt wording",
        "prompt.template=FILE.yaml",
    ):
        assert part in flowing


def test_a_protocol_is_compared_over_the_command_line():
    overrides = ["train.entropy_coef=0.5", "credit=hgpo"]
    ours = load("webshop_1.5b", overrides)
    theirs, protocol = other("webshop_1.5b", overrides, "protocol/verl_agent")
    found = {d.path: d for d in differences(ours, theirs, DOCS, protocol.changes)}
    assert (found["train.entropy_coef"].ours.value, found["train.entropy_coef"].theirs.value) == (0.5, 0.001)
    assert found["train.entropy_coef"].changes == protocol.changes["train.entropy_coef"]
    assert "env.max_steps" not in found  # 30 on both sides: the method's own


def test_show_against_another_experiment(monkeypatch, capsys):
    code, printed = command(monkeypatch, capsys, "show", "webshop_1.5b", "--against", "webshop_7b")
    assert code == 0
    options = {line.split()[0] for line in printed.out.splitlines() if re.match(r"[a-z]+\.", line)}
    assert options == {
        *("model.path", "model.gradient_checkpointing", "generator.memory", "generator.batched_tokens"),
        *("train.zero_stage", "train.token_budget", "train.reference"),
    }
    code, printed = command(
        monkeypatch, capsys, "show", "alfworld_cpu", "credit=gigpo", "--against", "alfworld_cpu"
    )
    assert "credit.scpo.theta" in printed.out and "–" in printed.out
    code, printed = command(monkeypatch, capsys, "show", "alfworld_cpu", "--against", "alfworld_cpu")
    assert (code, "no option differs" in printed.out) == (0, True)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--against", "protocol/verl_agnt"], "did you mean `verl_agent`?"),
        (["--against", "verl_agent"], "did you mean `protocol/verl_agent`?"),
        (["--against", "alfwrld_cpu"], "did you mean `alfworld_cpu`?"),
        (["--against", "nowhere.yaml"], "no experiment 'nowhere.yaml'"),
        (["protocol=recomended"], "did you mean `recommended`?"),
    ],
)
def test_unknown_names_get_a_hint(words, part, monkeypatch, capsys):
    code, printed = command(monkeypatch, capsys, "show", "alfworld_cpu", *words)
    assert code == 2
    assert part in printed.err


def test_show_says_where_published_settings_are_missing(monkeypatch, capsys):
    code, printed = command(monkeypatch, capsys, "show", "webshop_1.5b", "credit=dr_grpo")
    assert code == 0
    assert "credit/dr_grpo.yaml has no published settings for webshop" in printed.out
