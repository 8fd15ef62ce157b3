"""The settings that methods were published with, compared with a table written by hand from public files."""

import json

import pytest

from commands.build.declared import DOCS, credit_pipeline
from configs.layers import COMMAND_LINE
from configs.load import load, load_run, read_config, write_config
from configs.methods import methods, read_method
from configs.protocol import flat
from configs.show import rows
from configs.text import ConfigError
from tests.configs.published import READ


def values(loaded):
    return {row.path: row.value for row in rows(loaded, DOCS)}


@pytest.mark.parametrize(("method", "world"), READ)
def test_published_settings_are_what_was_read(method, world):
    source, options = READ[method, world]
    loaded = load(f"{world}_1.5b", [f"credit={method}"])
    got = values(loaded)
    assert {option: got[option] for option in options} == options
    assert loaded.notes == ()
    credit_pipeline(loaded)
    for option in options:
        place = option.replace("credit.", "credit.stages.", 1) if option.startswith("credit.") else option
        assert loaded.source(place).endswith(f", published for {world}")
    # Nothing else is set, and the file says where it was read, line included.
    published = read_method(method).published[world]
    assert flat(published.tree).keys() == options.keys()
    assert published.source.startswith(f"{source}:")


def test_the_table_has_every_method_with_public_settings():
    said = {(method, world) for method in methods() for world in read_method(method).published}
    assert said == set(READ)


@pytest.mark.parametrize("method", methods())
def test_every_value_of_a_method_file_has_its_line(method):
    """The source names file and line; the values are checked above."""
    for published in read_method(method).published.values():
        for part in published.source.split(", "):
            assert ":" in part.rpartition("/")[2], published.source


@pytest.mark.parametrize("method", sorted(set(methods()) - {method for method, _ in READ}))
def test_a_method_without_public_settings_keeps_its_plain_ones_and_it_is_said(method):
    loaded = load("webshop_1.5b", [f"credit={method}"])
    plain = load("webshop_1.5b", [f"credit={method}", "credit.settings=plain"])
    assert values(loaded) == values(plain) | {"credit.settings": "published"}
    (note,) = loaded.notes
    assert f"credit/{method}.yaml has no published settings for webshop" in note
    assert plain.notes == ()


def test_another_method_replaces_the_first_ones_settings_wholly():
    hgpo = load("webshop_1.5b", ["credit=hgpo"]).config
    assert (hgpo.env.max_steps, hgpo.train.updates) == (30, 160)
    scpo = load("webshop_1.5b").config
    assert (scpo.env.max_steps, scpo.train.updates) == (15, 150)
    assert scpo.credit.stages["gigpo"]["norm"] == "mean"
    assert hgpo.credit.stages["hgpo"]["norm"] == "mean"


def test_embedded_presets_compare_methods_on_one_footing():
    for method in ("hgpo", "gigpo_dynamic", "graphgpo"):
        config = load("webshop_cpu", [f"credit={method}"]).config
        assert (config.credit.settings, config.env.max_steps) == ("plain", 15)
        assert (config.train.clip_low, config.train.clip_high) == (0.2, 0.2)


def test_files_above_and_the_command_line_win_and_the_file_itself_does_not(write):
    said = "credit: {method: hgpo, settings: published, hgpo: {norm: mean_std}}"
    write("low", f"env: {{name: webshop, max_steps: 15}}\n{said}")
    middle = write("middle", "base: low\ntrain: {updates: 7}")
    loaded = load(middle, ["credit.hgpo.history=4"])
    config = loaded.config
    assert config.env.max_steps == 30
    assert config.credit.stages["hgpo"]["norm"] == "mean"
    assert config.train.updates == 7
    assert loaded.source("train.updates") == "middle.yaml"
    assert config.credit.stages["hgpo"]["history"] == 4
    assert loaded.source("credit.stages.hgpo.history") == COMMAND_LINE


def test_a_file_above_may_speak_of_the_method_it_was_written_for(write):
    write("low", "env: {name: webshop}\ncredit: {method: scpo, settings: published}")
    top = write("top", "base: low\ncredit: {scpo: {theta: 0.7}}")
    assert load(top).config.credit.stages["scpo"]["theta"] == 0.7
    hgpo = load(top, ["credit=hgpo"]).config
    assert hgpo.credit.stages["hgpo"]["norm"] == "mean"


def test_asked_for_on_the_command_line_other_items_win():
    config = load("webshop_cpu", ["credit=hgpo", "credit.settings=published", "env.max_steps=9"]).config
    assert (config.env.max_steps, config.prompt.window) == (9, 4608)
    assert config.credit.stages["hgpo"]["norm"] == "mean"


def test_the_environment_decides(write):
    own = load("webshop_1.5b", ["env.name=world.py:World", "env.options.rule=papers"])
    assert "no published settings for world.py:World" in own.notes[0]
    assert own.config.credit.stages["gigpo"]["norm"] == "mean_std"
    alfworld = load("webshop_1.5b", ["env.name=alfworld"])
    assert alfworld.config.credit.stages["gigpo"]["norm"] == "mean_std"


@pytest.mark.parametrize("method", ["hgpo", "graphgpo", "gigpo_dynamic", "scpo", "dr_grpo"])
@pytest.mark.parametrize("more", [[], ["protocol=verl_agent"], ["credit.settings=plain"]])
def test_a_runs_configuration_reloads_without_applying_anything_again(method, more, tmp_path):
    overrides = [f"credit={method}", "env.max_steps=11", "train.clip_high=0.3", *more]
    config = load("webshop_1.5b", overrides).config
    write_config(config, tmp_path / "config.json")
    assert read_config(tmp_path / "config.json") == config
    again = load_run(tmp_path)
    assert again.config == config
    assert load_run(tmp_path, ["eval.tasks=3"]).config.env.max_steps == 11


def test_a_reloaded_run_takes_a_protocol_only_where_an_override_asks(tmp_path):
    write_config(load("webshop_1.5b").config, tmp_path / "config.json")
    config = load_run(tmp_path, ["protocol=verl_agent", "train.entropy_coef=0.5"]).config
    assert (config.prompt.parse, config.train.entropy_coef) == ("papers", 0.5)
    assert load_run(tmp_path, ["train.entropy_coef=0.5"]).config.prompt.parse == "strict"


def test_a_reloaded_run_with_another_method_has_that_methods_settings(tmp_path):
    write_config(load("webshop_1.5b").config, tmp_path / "config.json")
    config = load_run(tmp_path, ["credit=hgpo"]).config
    assert (config.credit.settings, config.credit.stages["hgpo"]["norm"]) == ("published", "mean")
    plain = load_run(tmp_path, ["credit=hgpo", "credit.settings=plain"]).config
    assert (plain.env.max_steps, plain.credit.stages["hgpo"]["norm"]) == (15, "mean_std")


def test_methods_that_stand_for_one_another_are_refused(write):
    text = "name: mine\nstages: {{returns: {{}}, grpo: {{}}}}\npublished: {}"
    first = write("first", "")
    second = write("second", text.format(first))
    write("first", text.format(second))
    with pytest.raises(ConfigError, match="circle"):
        load("webshop_1.5b", [f"credit={first}"])


def test_configurations_from_before_load_as_they_were(tmp_path):
    config = load("webshop_cpu", ["train.loss=ppo"]).config
    saved = config.model_dump(mode="json")
    del saved["protocol"], saved["credit"]["settings"], saved["prompt"]["parse"]
    saved["train"] |= {"clip_low": 0.2, "clip_high": 0.2}
    (tmp_path / "config.json").write_text(json.dumps(saved), encoding="utf-8")
    assert load_run(tmp_path).config == config


@pytest.mark.parametrize(("loss", "clips"), [("ppo", (0.2, 0.2)), ("gspo", (3e-4, 4e-4))])
def test_each_loss_has_its_own_clip_unless_somebody_says_one(loss, clips, write):
    overrides = [f"train.loss={loss}", "train.aggregation=seq-mean-token-mean"]
    train = load("alfworld_cpu", overrides).config.train
    assert (train.clip_low, train.clip_high) == clips
    assert load("alfworld_cpu", [*overrides, "train.clip_low=null"]).config.train == train
    said = load("alfworld_cpu", [*overrides, "train.clip_high=0.1"]).config.train
    assert (said.clip_low, said.clip_high) == (clips[0], 0.1)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("published: {webshop: {credit: {grpo: {norm: mean}}}}", "must say its `source`"),
        ("published: {webshop: {source: x, credit: {gigpo: {norm: mean}}}}", "the method has no such stage"),
        ("published: {webshop: {source: x, seed: 1}}", "not for a method"),
        ("published: gigp", "did you mean `gigpo`?"),
        ("publshed: {}", "may have published"),
        ("published: {webshop: {source: x, train: {lrr: 1}}}", "did you mean `train.lr`?"),
    ],
)
def test_mistakes_in_a_method_file(text, part, write):
    own = write("mine", f"name: mine\nstages: {{returns: {{}}, grpo: {{}}}}\n{text}")
    with pytest.raises(ConfigError) as caught:
        load("webshop_1.5b", [f"credit={own}"])
    assert part in str(caught.value)


def test_a_method_of_ones_own_may_have_published_settings_also_for_a_new_stage(write):
    own = write(
        "mine",
        "name: mine\nstages: {returns: {}, newest: {}, grpo: {}}\n"
        "published: {webshop: {source: 'paper.pdf:3', credit: {grpo: {norm: mean}, newest: {x: 1}}}}",
    )
    config = load("webshop_1.5b", [f"credit={own}"]).config
    assert config.credit.stages["grpo"]["norm"] == "mean"
    assert config.credit.stages["newest"] == {"x": 1}
