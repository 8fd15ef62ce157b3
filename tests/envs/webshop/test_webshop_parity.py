"""`run.py parity webshop`: it passes on reference data, and finds what is wrong."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from commands.parity import webshop
from envs.webshop import parity
from envs.webshop.pages import Part
from envs.webshop.product import ShopError


@pytest.fixture
def golden(shared, tmp_path):
    """A copy of the reference data with few cases, and a function that changes one of its files."""
    folder = tmp_path / "golden"
    shutil.copytree(shared / "golden" / "webshop" / "catalogue", folder / "catalogue")
    for name, key, kept in (("golden_rewards", "cases", 12), ("golden_transcripts", "transcripts", 2)):
        data = json.loads((shared / "golden" / "webshop" / f"{name}.json").read_text())
        data[key] = data[key][:kept]
        (folder / f"{name}.json").write_text(json.dumps(data))

    def change(name, edit):
        path = folder / f"{name}.json"
        data = json.loads(path.read_text())
        edit(data)
        path.write_text(json.dumps(data))

    folder.chmod(0o755)
    return folder, change


def test_the_command_ends_with_the_count(golden, shared, capsys):
    assert webshop(golden[0], shared / "data" / "webshop") == 0
    out = capsys.readouterr().out.splitlines()
    assert any(line.endswith("6910 synthetic goals") for line in out)
    assert any(line.endswith("13 human goals") for line in out)
    assert out[-1] == f"{12 + 3 + 4 + 3} passed, 0 failed"


def test_wrong_numbers_of_goals_fail(golden, capsys):
    assert webshop(golden[0], golden[0] / "catalogue") == 3  # 300 products
    assert "expected 6910" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("golden_rewards", lambda d: d["cases"][0].update(reward=0.5), "reward 0 .*: reward\n  expected 0.5"),
        ("golden_rewards", lambda d: d["cases"][0]["info"].update(r_att=0.25), "r_att"),
        ("golden_rewards", lambda d: d["cases"][0].update(error="TypeError"), "expected an error"),
        ("golden_rewards", lambda d: d["cases"][0]["goal"].update(attributes=[]), "asks for no attribute"),
        (
            "golden_transcripts",
            lambda d: d["transcripts"][0]["steps"][2]["obs"].update(text="x"),
            r"walk 0 \(perfect purchase\), text, step 2",
        ),
        (
            "golden_transcripts",
            lambda d: d["transcripts"][1]["steps"][3]["obs"].update(text_rich="x"),
            "text_rich, step 3",
        ),
        (
            "golden_transcripts",
            lambda d: d["transcripts"][0]["steps"][1]["available"]["clickables"].reverse(),
            "clickables",
        ),
        (
            "golden_transcripts",
            lambda d: d["transcripts"][0]["steps"][5].update(reward=0.25),
            "step 5.*\n.*: reward|step 5",
        ),
        (
            "golden_transcripts",
            lambda d: d["transcripts"][0]["steps"][2].update(error="IndexError"),
            "not refused",
        ),
        (
            "golden_transcripts",
            lambda d: d["setups"]["human"]["goals"][3].update(price_upper=20.0),
            "goals of setup 'human': goals.3.price_limit",
        ),
        (
            "golden_transcripts",
            lambda d: d["setups"]["synthetic"]["goals"].pop(),
            "goals of setup 'synthetic': count",
        ),
    ],
)
def test_one_difference_is_found(golden, name, edit, message):
    folder, change = golden
    change(name, edit)
    result = parity.run_parity(folder)
    assert result.failed >= 1
    assert any(re.search(message, failure) for failure in result.failures)


def test_a_fault_of_the_pages_is_found(golden, monkeypatch):
    monkeypatch.setattr("envs.webshop.pages._NEXT", Part("Next", "button"))
    assert parity.run_parity(golden[0]).failed == 4


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "golden_rewards.json").unlink(), "No reference data at .*golden_rewards"),
        (lambda f: (f / "golden_transcripts.json").write_text("{"), "golden_transcripts.json' is damaged"),
        (lambda f: next((f / "catalogue").glob("items_ins*")).unlink(), "one file items_ins.*has 0"),
    ],
)
def test_missing_and_damaged_files_are_named(golden, spoil, message):
    (golden[0] / "catalogue").chmod(0o755)
    spoil(golden[0])
    with pytest.raises(ShopError, match=message):
        parity.run_parity(golden[0])
