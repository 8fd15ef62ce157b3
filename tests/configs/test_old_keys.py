"""Options that have another name now: files, command lines and run folders with the old one go on working."""

import json

import pytest

from commands.build.declared import check_world
from commands.replay import _chosen
from configs.check import validate
from configs.load import load, load_run
from configs.old_keys import first_names, recorded, recorded_key
from configs.text import ConfigError
from credit.pipeline import Pipeline
from eval.runfolder import RunFolder

# What a run folder of the time said of the shop, every option with its value.
SHOP = {
    **{"products": 2700, "goals": "synthetic", "rule": "by_product", "order": 233, "mode": "text"},
    **{"results_a_page": 4, "ids": "rank", "show_instruction": False, "show_attributes": False},
    "partial_reward": False,
}


def as_of_old(config, shop):
    """The configuration as a run folder of the time has it."""
    saved = config.model_dump(mode="json")
    saved["env"] |= {"options": {}, "webshop": shop}
    return saved


def test_an_old_name_on_the_command_line_is_taken_with_a_hint():
    old = load("webshop_cpu", ["env.webshop.products=80", "env.webshop.rule=papers"])
    assert old.config == load("webshop_cpu", ["env.options.products=80", "env.options.rule=papers"]).config
    assert old.notes == (
        "`env.webshop.products` (command line) is called `env.options.products` now",
        "`env.webshop.rule` (command line) is called `env.options.rule` now",
    )
    assert old.source("env.options.products") == "command line"
    assert load("webshop_cpu").notes == ()


def test_an_old_name_in_a_file_is_taken_and_what_stands_above_wins(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("base: webshop_cpu\nenv: {webshop: {products: 90, ids: asin}}", encoding="utf-8")
    options = load(str(file), ["env.options.ids=rank"]).config.env.options
    assert (options["products"], options["ids"], options["results_a_page"]) == (90, "rank", 4)


def test_old_names_below_the_file_that_names_the_world_are_kept(tmp_path):
    (tmp_path / "shop.yaml").write_text("env: {webshop: {products: 90}}", encoding="utf-8")
    file = tmp_path / "mine.yaml"
    file.write_text("base: shop\nenv: {name: webshop}", encoding="utf-8")
    loaded = load(str(file))
    assert loaded.config.env.options == {"products": 90}
    assert loaded.source("env.name") == "mine.yaml"
    again = load(str(file), ["env.webshop.products=80"])
    assert (again.config.env.options, again.source("env.name")) == ({"products": 80}, "mine.yaml")


def test_another_world_ignores_old_names_as_it_always_did():
    """A sweep over worlds may set them for all of its runs."""
    loaded = load("alfworld_cpu", ["env.webshop.products=80"])
    assert loaded.config == load("alfworld_cpu").config
    assert loaded.notes == ("`env.webshop.products` (command line) is ignored: env.name is alfworld",)


def test_a_misspelt_old_name_is_refused_like_a_misspelt_new_one():
    for path in ("env.webshop", "env.options"):
        with pytest.raises(ConfigError, match="no option 'prodcts'; did you mean 'products'"):
            check_world(load("webshop_cpu", [f"{path}.prodcts=3"]))


def opened(folder, saved, sources, now):
    """Writes a run folder of the time; it must load, and be read by reports, as the configuration `now`."""
    (folder / "config.json").write_text(json.dumps(saved), encoding="utf-8")
    (folder / "sources.json").write_text(json.dumps(sources), encoding="utf-8")
    assert load_run(folder).config == now
    run = RunFolder.read(folder)
    assert run.config == now.model_dump(mode="json")
    return run


@pytest.mark.parametrize(
    ("preset", "shop"), [("webshop_cpu", SHOP), ("alfworld_cpu", {**SHOP, "ids": "asin"})]
)
def test_an_old_run_folder_is_the_run_it_was(tmp_path, preset, shop):
    """Also one of another world: its folder lists the shop's options too, and they mean nothing."""
    now = load(preset).config
    saved = as_of_old(now, shop)
    assert validate(recorded(saved), {}) == now
    run = opened(tmp_path, saved, {"env.webshop.products": "mine.yaml"}, now)
    assert run.source("env.options.products") == "mine.yaml"


def test_what_is_recorded_now_stays_as_it_is():
    for preset in ("webshop_cpu", "alfworld_1.5b"):
        saved = load(preset).config.model_dump(mode="json")
        assert recorded(saved) == saved
    for key in ("env.options.products", "credit.stages.scpo.theta", "train.lr"):
        assert recorded_key(key) == key


@pytest.mark.parametrize(
    ("preset", "shop"),
    [
        ("webshop_cpu", SHOP),
        (
            "alfworld_cpu",
            SHOP | {"products": 1000, "results_a_page": 10, "ids": "asin", "show_instruction": True},
        ),
    ],
)
def test_folders_of_sweeps_are_named_by_the_oldest_names(preset, shop):
    now = load(preset, ["credit=3spo"]).config
    old = as_of_old(now, shop)
    old["credit"]["stages"]["branch"] = old["credit"]["stages"].pop("tree_search")
    assert first_names(now.model_dump(mode="json")) == old


def test_another_world_drops_the_options_of_the_old_one():
    assert load("webshop_cpu", ["env.name=alfworld"]).config.env.options == {}
    own = load("webshop_cpu", ["env.options.places=4", "env.name=docs/examples/storeroom.py:StoreroomWorld"])
    assert own.config.env.options == {"places": 4}


def test_a_stage_is_taken_by_its_old_name_with_one_hint(tmp_path):
    """On the command line, in an experiment file, in a method file, and in a pipeline made without these."""
    hint = "the credit stage `branch` ({}) is called `tree_search` now"
    now = load("alfworld_cpu", ["credit=3spo", "credit.tree_search.g_max=3"])
    old = load("alfworld_cpu", ["credit=3spo", "credit.branch.g_max=3"])
    assert old.config == now.config and old.source("credit.stages.tree_search.g_max") == "command line"
    assert sorted(old.notes) == sorted([*now.notes, hint.format("command line")])
    stages = {
        "branch" if name == "tree_search" else name: options
        for name, options in now.config.credit.stages.items()
    }
    (tmp_path / "mine.yaml").write_text(json.dumps({"name": "3spo", "stages": stages}), encoding="utf-8")
    (tmp_path / "top.yaml").write_text(
        json.dumps({"base": "alfworld_cpu", "credit": {"name": "3spo", "stages": stages}}), encoding="utf-8"
    )
    by_file = load(str(tmp_path / "top.yaml"))
    assert by_file.config.credit == now.config.credit and hint.format("top.yaml") in by_file.notes
    by_method = load("alfworld_cpu", [f"credit={tmp_path / 'mine.yaml'}"])
    assert by_method.config.credit == now.config.credit
    assert by_method.notes.count(hint.format("credit/mine.yaml")) == 1
    first, second = (Pipeline.from_config(one).stages for one in (stages, now.config.credit.stages))
    assert first == second == Pipeline.from_yaml(tmp_path / "mine.yaml").stages


def test_a_run_folder_with_a_stages_old_name_is_the_run_it_was(tmp_path):
    now = load("alfworld_cpu", ["credit=3spo", "credit.tree_search.g_max=3"]).config
    saved = now.model_dump(mode="json")
    credit = saved["credit"]
    credit["stages"] = {k.replace("tree_search", "branch"): v for k, v in credit["stages"].items()}
    run = opened(tmp_path, saved, {"credit.stages.branch.g_max": "command line"}, now)
    assert run.source("credit.stages.tree_search.g_max") == "command line"
    assert _chosen(tmp_path, now)["tree_search"] == {"g_max": 3}
