"""Layers, provenance, and that every mistake gets one message that helps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.check import is_section
from configs.layers import COMMAND_LINE
from configs.load import experiments, find, load, read_config, write_config
from configs.methods import methods
from configs.schema import Config, Section
from configs.text import ConfigError, read_yaml


def message(experiment, *overrides):
    with pytest.raises(ConfigError) as caught:
        load(experiment, overrides)
    return str(caught.value)


@pytest.mark.parametrize("experiment", [p.stem for p in experiments()])
def test_every_shipped_experiment_loads(experiment):
    loaded = load(experiment)
    assert loaded.config.name == experiment
    assert loaded.config.train.updates > 0


@pytest.mark.parametrize("method", methods())
def test_every_shipped_method_loads_in_an_experiment(method):
    config = load("alfworld_cpu", [f"credit={method}"]).config
    assert config.credit.name == method
    assert config.credit.stages


def test_command_line_over_file_over_base_over_default(write):
    write("low", "train: {lr: 1e-5, epochs: 2}\nseed: 3")
    top = write("top", "base: low\ntrain: {lr: 2e-5}")
    loaded = load(top, ["train.minibatches=4"])
    train = loaded.config.train
    assert (train.lr, train.epochs, train.minibatches, train.grad_clip) == (2e-5, 2, 4, 1.0)
    sources = [loaded.source(f"train.{key}") for key in ("lr", "epochs", "minibatches", "grad_clip")]
    assert sources == ["top.yaml", "low.yaml", COMMAND_LINE, "default"]
    assert loaded.config.seed == 3


def test_several_bases_later_ones_win_and_bases_have_bases(write):
    write("a", "seed: 1\nthreads: 1")
    write("b", "base: [a]\nseed: 2")
    write("c", "threads: 3")
    config = load(write("d", "base: [b, c]")).config
    assert (config.seed, config.threads) == (2, 3)


def test_bases_in_a_circle_are_refused(write):
    write("a", "base: b")
    assert "circle: b.yaml → a.yaml → b.yaml" in message(write("b", "base: a"))


@pytest.mark.parametrize("text", ["3e-6", "'3e-6'", "3.0e-6", "0.000003", "3E-06"])
def test_every_spelling_of_a_small_number_is_that_number(write, text):
    assert load(write("x", f"train: {{lr: {text}}}")).config.train.lr == 3e-6
    assert load("alfworld_cpu", [f"train.lr={text}"]).config.train.lr == 3e-6


def test_stage_options_read_small_numbers_too(write):
    stages = load(write("x", "credit: {method: scpo, scpo: {theta: 9e-1}}")).config.credit.stages
    assert stages["scpo"]["theta"] == 0.9


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_survive_yaml(number):
    assert read_yaml(repr(number)) == number


def test_off_is_a_word_and_true_is_not(write):
    config = load(write("x", "logging: {wandb: off}\nenv: {skip_corrupt: true}")).config
    assert config.logging.wandb == "off"
    assert config.env.skip_corrupt is True
    assert load("alfworld_cpu", ["logging.wandb=off", "eval.tasks=null"]).config.eval.tasks is None


def test_a_key_twice_is_refused(write):
    assert "'seed' is there twice" in message(write("x", "seed: 1\nseed: 2"))


# --- the credit method -------------------------------------------------------------------------------------


def test_a_method_brings_its_stages_in_order():
    loaded = load("alfworld_cpu", ["credit=scpo"])
    assert list(loaded.config.credit.stages) == ["returns", "scpo", "gigpo"]
    assert loaded.source("credit.stages.gigpo.omega") == "credit/scpo.yaml"


def test_stage_options_from_file_and_command_line(write):
    top = write("top", "credit: {method: scpo, scpo: {theta: 0.9, lam: 0.4}}")
    loaded = load(top, ["credit.scpo.lam=0.3"])
    scpo = loaded.config.credit.stages["scpo"]
    assert (scpo["theta"], scpo["lam"]) == (0.9, 0.3)
    assert loaded.source("credit.stages.scpo.theta") == "top.yaml"
    assert loaded.source("credit.stages.scpo.lam") == COMMAND_LINE


def test_another_method_on_the_command_line_keeps_what_was_said_of_stages_both_have(write):
    top = write("top", "credit: {method: scpo, gigpo: {omega: 0.25}, scpo: {theta: 0.9}}")
    loaded = load(top, ["credit=gigpo", "credit.returns.gamma=0.9"])
    credit = loaded.config.credit
    assert list(credit.stages) == ["returns", "gigpo"]  # nothing of scpo is left
    assert credit.stages["gigpo"] == {**load(top).config.credit.stages["gigpo"], "omega": 0.25}
    assert loaded.source("credit.stages.gigpo.omega") == "top.yaml"
    assert credit.stages["returns"]["gamma"] == 0.9


@pytest.mark.parametrize("method", methods())
def test_methods_of_an_experiment_differ_in_credit_only_not_in_the_penalty(method):
    stages = load("alfworld_cpu", [f"credit={method}"]).config.credit.stages
    if "returns" in stages:  # without it a method knows no penalty
        assert stages["returns"]["invalid_penalty"] == 0.0


def test_the_same_method_on_the_command_line_keeps_the_files_options(write):
    top = write("top", "credit: {method: scpo, scpo: {theta: 0.9}}")
    assert load(top, ["credit=scpo"]).config.credit.stages["scpo"]["theta"] == 0.9


def test_overrides_of_method_and_stage_in_either_order():
    both = [load("alfworld_cpu", o).config for o in (["credit=scpo", "credit.scpo.theta=0.7"],
                                                      ["credit.scpo.theta=0.7", "credit=scpo"])]  # fmt: skip
    assert both[0] == both[1]
    assert both[0].credit.stages["scpo"]["theta"] == 0.7


def test_a_stage_the_method_lacks_is_an_error_on_the_command_line():
    text = message("alfworld_cpu", "credit=gigpo", "credit.scpo.theta=0.7")
    assert "`credit.scpo` (command line)" in text
    assert "has the stages returns, gigpo" in text
    assert "did you mean `credit.gigpo`?" in message("alfworld_cpu", "credit=gigpo", "credit.gigp.omega=1")


def test_a_method_of_ones_own(write):
    own = write("mine", "name: mine\nstages: {returns: {gamma: 1.0}, grpo:}")
    credit = load(write("plain", "credit: scpo"), [f"credit={own}"]).config.credit
    assert (credit.name, credit.stages) == ("mine", {"returns": {"gamma": 1.0}, "grpo": {}})
    inline = load(write("x", "credit: {name: mine, stages: {returns: {gamma: 1.0}, grpo: {}}}")).config.credit
    assert inline == credit


def test_another_scorer_drops_the_files_scorer_options(write):
    top = write("top", "scorer: {name: one, options: {a: 1}}")
    assert load(top).config.scorer.options == {"a": 1}
    assert load(top, ["scorer.name=two"]).config.scorer.options == {}
    assert load(top, ["scorer.options.b=2"]).config.scorer.options == {"a": 1, "b": 2}


# --- mistakes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["train.lrr=1e-4"], ["`train.lrr` (command line)", "did you mean `train.lr`?"]),
        (["lr=1e-4"], ["did you mean `train.lr`?"]),
        (["trian.lr=1"], ["unknown option `trian`", "did you mean `train`?"]),
        (["split=x"], ["`env.split` or `eval.split`"]),
        (["train.loss=pp"], ["must be 'ppo' or 'gspo', got 'pp'", "did you mean `ppo`?"]),
        (["train.lr=0"], ["`train.lr` must be greater than 0, got 0"]),
        (["env.difficulty=1.5"], ["less than or equal to 1"]),
        (["env.max_steps=many"], ["valid integer", "'many'"]),
        (["train.lr=-1", "rollout.groups=0"], ["`train.lr`", "`rollout.groups`"]),
        (["credit=gigp"], ["unknown credit method 'gigp'", "did you mean `gigpo`?", "grpo"]),
        (["credit.stages.scpo.theta=1"], ["credit.STAGE.option=value"]),
        (["train"], ["'train'", "key.path=value"]),
        (["=3"], ["key.path=value"]),
        (["train=3"], ["`train` is a section"]),
        (["train.lr.x=3"], ["train.lr"]),
        (["train.lr=1e-4", "train.lr.x=3"], ["sets an option inside 'lr'"]),
        (["train.betas=[1"], ["as YAML"]),
    ],
)
def test_mistakes_on_the_command_line(overrides, parts):
    text = message("alfworld_cpu", *overrides)
    for part in parts:
        assert part in text


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (["prompt.window=64", "prompt.max_response_tokens=64"], "no room for a prompt"),
        (["train.loss=gspo", "train.aggregation=token-mean"], "seq-mean-token-mean"),
        (["rollout.groups=1", "rollout.group_size=2", "train.minibatches=3"], "2 trajectories"),
        (["train.minibatches=2", "train.minibatch_rows=64"], "set one of them"),
        (["train.reference=cpu", "model.lora.r=8"], "nothing to move"),
    ],
)
def test_impossible_combinations(overrides, part):
    assert part in message("alfworld_cpu", *overrides)


def test_unknown_experiment():
    text = message("alfworld_cup")
    assert "did you mean `alfworld_cpu`?" in text
    assert "alfworld_cpu_long" in text
    assert "no experiment 'nowhere.yaml'" in message("nowhere.yaml")


def test_mistakes_in_a_file_name_the_file(write):
    assert "`train.lrr` (x.yaml)" in message(write("x", "train: {lrr: 1}"))
    assert "(x.yaml)" in message(write("x", "train: {lr: -1}"))
    assert "x.yaml" in message(write("x", "- a list"))
    assert "x.yaml" in message(write("x", "a: [1"))


# --- round trip ------------------------------------------------------------------------------------


@pytest.mark.parametrize("experiment", [p.stem for p in experiments()])
def test_config_json_reloads_exactly(experiment, tmp_path):
    config = load(experiment, ["train.lr=3e-7", "train.betas=[0.8, 0.95]"]).config
    write_config(config, tmp_path / "config.json")
    assert read_config(tmp_path / "config.json") == config


def test_a_broken_or_missing_config_json_is_one_message(tmp_path):
    path = tmp_path / "config.json"
    with pytest.raises(ConfigError, match="folder of a run"):
        read_config(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="not JSON"):
        read_config(path)
    path.write_text('{"train": {"lrr": 1}}', encoding="utf-8")
    with pytest.raises(ConfigError, match="train.lrr.*config.json"):
        read_config(path)


def test_every_option_is_documented():
    sections = [Config, *(type(section) for _, section in Config() if isinstance(section, Section))]
    undocumented = [
        f"{section.__name__}.{key}"
        for section in sections
        for key, info in section.model_fields.items()
        if not info.description and not is_section(info.annotation)
    ]
    assert not undocumented


def test_find_gives_the_file():
    assert find("alfworld_cpu").name == "alfworld_cpu.yaml"
