"""The table of options that do not change what a run is, compared with the schema and its three users."""

from collections.abc import Iterator

import pytest

from commands.experiments.one_run import job, make_run
from configs.check import is_section
from configs.neutral import MEASURED, NEUTRAL, NOTHING, ROUNDING, effect, without
from configs.resuming import config_differences as refused
from configs.schema import Config
from eval.runfolder import RunFolder
from eval.runlist import config_differences as compared
from eval.variants import differences, variants_of
from tests.eval.synthetic import RunWriter


def walk(section: type, prefix: str = "") -> Iterator[tuple[str, bool]]:
    """Yields (dotted path, whether it is a section)."""
    for key, info in section.model_fields.items():
        yield prefix + key, is_section(info.annotation)
        if is_section(info.annotation):
            yield from walk(info.annotation, f"{prefix}{key}.")


OPTIONS = [path for path, section in walk(Config) if not section]
MATTERS = [path for path in OPTIONS if effect(path) is None]


@pytest.mark.parametrize("name", NEUTRAL)
def test_every_entry_is_an_option_or_a_section(name):
    assert name in dict(walk(Config))


def test_what_nobody_has_classified_matters():
    for option in (
        "train.new",
        "new",
        "new.option",
        "threads_of",
        "names",
        "checkpoints.every",
        "env.worker",
    ):
        assert effect(option) is None, option
    assert effect("logging.new") == effect("wandb.old") == NOTHING
    assert effect("eval.every") == MEASURED and effect("train.token_budget") == ROUNDING


def test_what_makes_a_method_matters():
    for option in (
        "seed", "env.name", "env.data_seed", "model.path", "model.dtype", "prompt.form", "generator.backend",
        "rollout.groups", "rollout.staleness", "rollout.time_limit_s", "rollout.on_failure", "credit.stages",
        "train.lr", "train.updates", "train.engine", "train.aggregation", "eval.split", "eval.temperature",
    ):  # fmt: skip
        assert option in MATTERS, option
    assert len(MATTERS) > len(OPTIONS) / 2


def test_without_takes_out_the_effects_named_and_empty_sections_stay():
    tree = {"seed": 1, "threads": 2, "train": {"lr": 0.1, "token_budget": 9}, "eval": {"every": 3}}
    assert without(tree, (NOTHING, ROUNDING)) == {"seed": 1, "train": {"lr": 0.1}, "eval": {"every": 3}}
    assert without(tree, (MEASURED,)) == {**tree, "eval": {}}


# --- its users ---------------------------------------------------------------------------------------------

OTHER = {NOTHING: "env.workers=2", ROUNDING: "train.token_budget=5000", MEASURED: "eval.every=5"}
LEVELS = sorted(OTHER)


@pytest.mark.parametrize("level", LEVELS)
def test_runs_that_differ_in_it_are_one_method(tmp_path, level):
    runs = [
        RunFolder.read(RunWriter(tmp_path / str(seed), overrides=[f"seed={seed}", *more]).path)
        for seed, more in enumerate(([], [OTHER[level]]))
    ]
    (variant,) = variants_of(runs)
    assert (variant.label, variant.seeds) == ("SCPO", [0, 1])
    shown = [key for key, _, _ in compared(*runs)]
    option = OTHER[level].partition("=")[0]
    assert shown == (["seed"] if level == NOTHING else sorted(["seed", option], key=OPTIONS.index))


def test_rounding_is_named_among_the_differences_of_two_methods(tmp_path):
    more = {"scpo": [], "grpo": ["train.token_budget=5000", "env.workers=2"]}
    runs = [
        RunFolder.read(RunWriter(tmp_path / method, method, options).path) for method, options in more.items()
    ]
    found = [key for key, _ in differences(variants_of(runs))]
    assert "train.token_budget" in found and "credit.name" in found and "env.workers" not in found


@pytest.mark.parametrize("level", LEVELS)
def test_a_sweeps_run_keeps_its_name_unless_something_else_is_measured(tmp_path, level):
    names = [
        make_run("alfworld_cpu", fixed, {"train.lr": 1e-5, "seed": 1}, folder=tmp_path)[0].name
        for fixed in ([], [OTHER[level]])
    ]
    assert (names[0] == names[1]) == (level != MEASURED)


def test_a_finished_run_of_a_sweep_is_kept_when_its_environments_are_to_play_elsewhere(tmp_path):
    point = {"train.lr": 1e-5, "seed": 1}
    before, loaded = make_run("alfworld_cpu", ["train.updates=3"], point, folder=tmp_path)
    before.folder.mkdir()
    (before.folder / "summary.json").write_text('{"updates": 3}')
    again, _ = make_run("alfworld_cpu", ["train.updates=3", "env.workers=2"], point, folder=tmp_path)
    assert again.state == "finished" and loaded.config.env.workers == 0
    other, _ = make_run("alfworld_cpu", ["train.updates=3", "train.lr_warmup=1"], point, folder=tmp_path)
    assert other.state == "new"


def test_points_that_differ_in_neutral_options_only_are_still_two_runs(tmp_path):
    """Their names are cut before what tells them apart."""
    long = {"env.data": "x" * 90, "seed": 1}
    names = [
        make_run("alfworld_cpu", [], long | more, folder=tmp_path)[0].name
        for more in ({}, {"env.workers": 1}, {"env.workers": 2}, {"train.token_budget": 5000})
    ]
    assert len(set(names)) == 4


def test_a_killed_run_goes_on_with_the_neutral_options_asked_for_now(tmp_path):
    asked = [
        "protocol=verl_agent",
        "credit.settings=published",
        "env.workers=2",
        "train.updates=3",
        "eval.every=1",
    ]
    run, _ = make_run(
        "alfworld_cpu", asked, {"train.lr": 1e-5, "seed": 1}, folder=tmp_path, logging=["logging.group=g"]
    )
    said = [one for one in job(run, resume=True).command if "=" in one]
    assert said == ["processes=1", "env.workers=2", "logging.group=g"]
    assert set(asked) < set(job(run, resume=False).command)


@pytest.mark.parametrize("option", OPTIONS)
def test_a_run_is_resumed_under_what_is_neutral_only(option):
    def config(value):
        tree: dict = {}
        *parents, leaf = option.split(".")
        node = tree
        for key in parents:
            node = node.setdefault(key, {})
        node[leaf] = value
        return tree

    assert bool(refused(config(1), config(2))) == (option in MATTERS)
