"""Protocols: what they set, on both sides of every switch, down to what is built."""

import json

import numpy as np
import pytest

from agent.policy import Sampling
from agent.prompts.builder import PromptBuilder, load_template
from agent.prompts.parse import parser
from agent.prompts.turns import TurnFormat
from agent.rollout.rollout import rollout
from commands.build.declared import DOCS, credit_pipeline, stage_docs
from commands.build.learner import _loss_options
from commands.build.models import prompt_builder
from commands.experiments.one_run import make_run
from commands.replay import methods_of
from configs.layers import COMMAND_LINE
from configs.load import experiments, load, load_run, write_config
from configs.methods import methods
from configs.protocol import flat, protocols, read_protocol
from configs.show import rows
from configs.text import ConfigError
from credit.pipeline import Pipeline
from credit.registry import all_stages
from eval.evaluate import evaluate
from eval.result import EvalResult
from rl.rows.assemble import step_table, token_rows
from rl.tracking.trajectory_store import TrajectoryStore, load_groups
from tests.toy import ScriptedPolicy, ToyEnv, toy_tasks, toy_tokenizer

GPU = [
    f"{world}_{size}" for world in ("alfworld", "webshop") for size in ("1.5b", "7b", "1.5b_lora", "7b_lora")
]

UNLISTED = "<think>x</think><action>fly to the moon</action>"

# Option → (recommended, verl_agent), by hand.
SWITCHES = {
    "env.anchor": ("state", "text"),
    "prompt.parse": ("strict", "papers"),
    "train.mask_truncated": (False, False),
    "train.entropy_coef": (0.0, 0.001),
    "train.aggregation": ("token-mean", "token-mean"),
    "train.mismatch": ("off", "recompute"),
    "credit.gigpo.unit": ("rows", "rows"),
    "credit.gigpo.lone": ("zero", "raw"),
    "credit.gigpo.fp32_reference_compat": (False, True),
}


def values(loaded):
    return {row.path: row.value for row in rows(loaded, DOCS)}


def toy_prompts(rule):
    turns, template = TurnFormat(toy_tokenizer()), load_template("alfworld_bare")
    return PromptBuilder(turns, "append", template, 2, 1500, 30, parser(rule, 30))


def play(policy, prompts):
    sampling, tasks = Sampling(1.0), toy_tasks(2)
    return rollout(policy, sampling, ToyEnv, tasks, group_size=2, prompts=prompts, max_parallel=4, seed=0)


# --- the files -------------------------------------------------------------------------------------------


def test_both_protocols_choose_for_the_same_switches():
    recommended, public = read_protocol("recommended"), read_protocol("verl_agent")
    assert set(public.changes) - set(recommended.changes) == {"credit.settings"}
    assert set(recommended.changes) <= set(public.changes)
    assert set(protocols()) == {"recommended", "verl_agent"}


@pytest.mark.parametrize("name", protocols())
def test_every_switch_says_in_a_line_or_two_what_it_changes(name):
    for option, changes in read_protocol(name).changes.items():
        assert changes.endswith(".") and 20 < len(changes) < 260, option


@pytest.mark.parametrize("name", protocols())
def test_a_stage_option_is_set_in_every_stage_that_has_it(name):
    """`unit`, `lone` and float32 statistics are one choice, whichever method makes it."""
    said = {option for option in read_protocol(name).changes if option.startswith("credit.")}
    for key in ("unit", "lone", "fp32_reference_compat"):
        having = {f"credit.{stage}.{key}" for stage in all_stages() if key in stage_docs(stage)}
        assert {option for option in said if option.endswith(f".{key}")} == having


@pytest.mark.parametrize("name", protocols())
@pytest.mark.parametrize("method", methods())
def test_every_method_can_be_built_under_every_protocol(name, method):
    for preset in ("alfworld_1.5b", "webshop_1.5b"):
        loaded = load(preset, [f"credit={method}", f"protocol={name}"])
        pipeline = credit_pipeline(loaded)
        for stage in pipeline.stages:
            for option, value in flat(read_protocol(name).switches["credit"]).items():
                own, _, key = option.partition(".")
                if own == stage.name():
                    assert getattr(stage, key) == value


@pytest.mark.parametrize("preset", GPU)
@pytest.mark.parametrize(("name", "side"), [("recommended", 0), ("verl_agent", 1)])
def test_what_a_preset_is_under_each_protocol(preset, name, side):
    loaded = load(preset, [f"protocol={name}"])
    got = values(loaded)
    assert {option: got[option] for option in SWITCHES} == {o: both[side] for o, both in SWITCHES.items()}
    assert loaded.config.protocol == name
    assert loaded.source("env.anchor") == f"protocol/{name}.yaml"
    assert loaded.source("credit.stages.gigpo.lone") == f"protocol/{name}.yaml"
    assert load(preset).config.protocol == "recommended"


def test_the_public_recipe_by_hand():
    """Section by section from examples/*_trainer/run_{alfworld,webshop}.sh and ppo_trainer.yaml."""
    for world, steps, window, batch, split in (
        ("alfworld", 50, 2048 + 512, 256, "valid_seen"),
        ("webshop", 15, 4096 + 512, 64, "test"),
    ):
        config = load(f"{world}_cpu", ["protocol=verl_agent", "credit=gigpo"]).config
        prompt, train, roll, final = config.prompt, config.train, config.rollout, config.eval
        assert config.env.max_steps == steps
        assert (prompt.form, prompt.history, prompt.window) == ("stepwise", 2, window)
        assert (prompt.template, prompt.max_response_tokens) == (world, 512)
        assert (roll.groups, roll.group_size, roll.temperature) == (16, 8, 1.0)
        assert (train.minibatch_rows, train.epochs, train.updates) == (batch, 1, 150)
        assert (train.kl_coef, train.kl_kind, train.dual_clip) == (0.01, "k3", 3.0)
        assert (train.clip_low, train.clip_high) == (0.2, 0.2)
        assert (train.weight_decay, train.grad_clip, train.lr_schedule) == (0.01, 1.0, "constant")
        assert (final.split, final.tasks, final.every, final.temperature) == (split, 128, 5, 0.4)
        returns = config.credit.stages["returns"]
        assert (returns["gamma"], returns["invalid_penalty"]) == (0.95, 0.1)
        assert config.credit.stages["gigpo"]["norm"] == {"alfworld": "mean_std", "webshop": "mean"}[world]


# --- as a layer ------------------------------------------------------------------------------------------


def test_the_command_line_wins_and_the_methods_own_settings_lie_over_the_protocol():
    loaded = load("webshop_1.5b", ["protocol=verl_agent", "credit=hgpo", "train.entropy_coef=0.5"])
    config = loaded.config
    assert config.train.entropy_coef == 0.5
    assert loaded.source("train.entropy_coef") == COMMAND_LINE
    assert (config.env.max_steps, config.credit.stages["hgpo"]["norm"]) == (30, "mean")
    assert load("alfworld_1.5b", ["protocol=verl_agent", "credit=graphgpo"]).config.env.anchor == "state"
    assert load("alfworld_1.5b", ["protocol=verl_agent", "credit=t2po"]).config.prompt.parse == "strict"


def test_a_file_above_the_one_that_asks_wins(tmp_path):
    (tmp_path / "top.yaml").write_text("base: alfworld_1.5b\nenv: {anchor: text}", encoding="utf-8")
    config = load(str(tmp_path / "top.yaml")).config
    assert (config.protocol, config.env.anchor, config.prompt.parse) == ("recommended", "text", "strict")
    plain = load(str(tmp_path / "top.yaml"), ["protocol=null"]).config
    assert plain.protocol is None
    assert plain.credit.stages["gigpo"]["unit"] == "trajectories"


def test_embedded_presets_have_no_protocol():
    for preset in ("alfworld_cpu", "alfworld_cpu_long", "webshop_cpu"):
        config = load(preset).config
        assert (config.protocol, config.env.anchor, config.prompt.parse) == (None, "state", "strict")
        assert config.credit.stages["gigpo"]["unit"] == "trajectories"


def test_a_protocol_of_ones_own(tmp_path):
    own = tmp_path / "mine.yaml"
    own.write_text(
        "switches: [{set: {train.epochs: 2, credit.grpo.unit: rows}, changes: x}]", encoding="utf-8"
    )
    config = load("alfworld_cpu", [f"protocol={own}", "credit=grpo"]).config
    assert (config.train.epochs, config.credit.stages["grpo"]["unit"]) == (2, "rows")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("switches: [{set: {train.epoch: 2}, changes: x}]", "did you mean `train.epochs`?"),
        ("switches: [{set: {credit.grppo.unit: rows}, changes: x}]", "unknown option `credit.grppo`"),
        ("switches: [{set: {train.epochs: 2}}]", "must have the keys set and changes"),
        ("switch: []", "may have the keys"),
        ("only: [webshop]", "section"),
    ],
)
def test_mistakes_in_a_protocol_file(text, part, tmp_path):
    own = tmp_path / "mine.yaml"
    own.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load("alfworld_cpu", [f"protocol={own}"])
    assert part in str(caught.value)


# --- what is built ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["alfworld_1.5b", "webshop_1.5b"])
@pytest.mark.parametrize(("name", "side"), [("recommended", 0), ("verl_agent", 1)])
def test_the_switches_reach_what_is_built(preset, name, side):
    loaded = load(preset, [f"protocol={name}", "credit=gigpo"])
    config = loaded.config
    loss = _loss_options(config)
    assert (loss.entropy_coef, loss.mismatch, loss.aggregation) == (
        (0.0, 0.001)[side],
        ("off", "recompute")[side],
        "token-mean",
    )
    assert (loss.clip_low, loss.clip_high, loss.dual_clip) == (0.2, 0.2, 3.0)
    gigpo = credit_pipeline(loaded).stages[-1]
    assert (gigpo.unit, gigpo.lone, gigpo.fp32_reference_compat) == (
        "rows",
        ("zero", "raw")[side],
        bool(side),
    )
    prompts = prompt_builder(config, toy_tokenizer())
    assert prompts.parser("Sure! <think>a</think> <action>Go to desk 1</action>").well_formed == bool(side)
    end = {"alfworld": 30, "webshop": 20}[config.env.name]
    assert prompts.parser("X" * 50).action == ("", "x" * end)[side]


def test_gspos_clip_reaches_the_loss():
    config = load("alfworld_1.5b", ["train.loss=gspo", "train.aggregation=seq-mean-token-mean"]).config
    loss = _loss_options(config)
    assert (loss.kind, loss.clip_low, loss.clip_high) == ("gspo", 3e-4, 4e-4)


@pytest.mark.parametrize(("rule", "valid"), [("strict", False), ("papers", True)])
def test_rollout_penalty_evaluation_and_record_agree_on_validity(rule, valid, tmp_path):
    """An action that the environment does not list, in the right form."""
    policy, prompts = ScriptedPolicy(toy_tokenizer(), lambda _, rng: UNLISTED), toy_prompts(rule)
    groups = play(policy, prompts)
    steps = [step for group in groups for tr in group for step in tr.steps]
    assert {step.admissible for step in steps} == {False}
    assert {step.valid for step in steps} == {valid}
    table = step_table(groups)
    assert set(table.valid) == {valid}
    result = Pipeline.from_config({"returns": {"invalid_penalty": 0.1, "gamma": 1.0}, "grpo": {}}).run(table)
    np.testing.assert_allclose(result.returns, 0.0 if valid else -0.1)
    tally = evaluate(policy, ToyEnv, toy_tasks(2), prompts, sampling=Sampling(1.0), seed=0, max_parallel=4)
    assert isinstance(tally, EvalResult)
    assert {task.valid == task.steps for task in tally.tasks} == {valid}
    TrajectoryStore(tmp_path).write(1, groups, table, result)
    (path,) = tmp_path.iterdir()
    read = load_groups(path)
    assert [tr.steps for group in read for tr in group] == [tr.steps for group in groups for tr in group]


def test_mask_truncated_decides_whether_a_cut_response_has_loss():
    for name in protocols():
        config = load("alfworld_1.5b", [f"protocol={name}"]).config
        assert config.train.mask_truncated is False
    groups = play(ScriptedPolicy(toy_tokenizer(), lambda _, rng: "<think>x</think>"), toy_prompts("strict"))
    steps = [step for group in groups for trajectory in group for step in trajectory.steps]
    for step in steps:
        step.finish = "length"
    spans = [sum(len(row.spans) for row in token_rows(groups, mask_truncated=m)) for m in (False, True)]
    assert spans == [len(steps), 0]


def test_runs_of_a_sweep_have_their_methods_settings_and_reload_as_they_were(tmp_path):
    steps = {}
    for method in ("hgpo", "gigpo", "dr_grpo"):
        run, loaded = make_run("webshop_1.5b", [], {"credit": method, "seed": 1}, folder=tmp_path)
        run.folder.mkdir()
        write_config(loaded.config, run.folder / "config.json")
        assert load_run(run.folder).config == loaded.config
        again, _ = make_run("webshop_1.5b", [], {"credit": method, "seed": 1}, folder=tmp_path)
        assert again.name == run.name
        steps[method] = loaded.config.env.max_steps
    assert steps == {"hgpo": 30, "gigpo": 15, "dr_grpo": 15}


def test_other_methods_are_replayed_with_the_runs_protocol_and_their_published_settings(tmp_path):
    loaded = load("webshop_1.5b", ["protocol=verl_agent", "credit=gigpo"])
    write_config(loaded.config, tmp_path / "config.json")
    (tmp_path / "sources.json").write_text(json.dumps(loaded.sources), encoding="utf-8")
    _, replayed = methods_of(tmp_path, ["gigpo", "hgpo", "grpo"])
    own, hgpo, grpo = (method.pipeline.stages[-1] for method in replayed)
    assert own == credit_pipeline(loaded).stages[-1]
    assert (hgpo.norm, hgpo.unit, hgpo.fp32_reference_compat) == ("mean", "rows", True)
    assert (grpo.norm, grpo.lone) == ("mean_std", "raw")
    write_config(load("webshop_cpu", ["credit=gigpo"]).config, tmp_path / "config.json")
    _, (plain,) = methods_of(tmp_path, ["hgpo"])
    assert (plain.pipeline.stages[-1].norm, plain.pipeline.stages[-1].unit) == ("mean_std", "trajectories")


def test_protocols_are_layers_and_no_experiments():
    assert not set(protocols()) & {path.stem for path in experiments()}
