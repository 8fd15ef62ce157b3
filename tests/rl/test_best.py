"""The best checkpoint: kept beside the newest, whatever happens to the run on the way."""

import json

import pytest
import torch

from eval.best import choice
from rl.checkpoint import CheckpointError, Checkpoints, TrainState
from tests.rl.helpers import make_learner, pretrained_toy, toy_run
from tests.toy import tiny_model

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

SUCCESS = [0.2, 0.7, 0.7, 0.1, 0.4]  # after 0, 1, … updates
SMALL = dict(groups=2, group_size=2, config={"train": {"lr_schedule": "constant"}})


def run(folder, updates=4, scores=SUCCESS, keep_best="eval/success", **options):
    """A toy run whose evaluation after u updates gives `scores[u]`."""

    def evaluate(policy, update):
        return {"eval/success": scores[update], "eval/score": 1 - scores[update]}

    options = {"eval_every": 1, "checkpoint_every": 1, **SMALL, **options}
    return toy_run(folder, updates=updates, evaluate=evaluate, keep_best=keep_best, **options)


def kept(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def weights(folder, update):
    return (folder / "checkpoints" / update / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run in one go, and the state it ended in. Read only."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(folder)[1]


def test_the_best_stays_beside_the_newest(whole, tmp_path):
    folder, state = whole
    assert kept(folder) == ["0001", "0003", "0004"]  # 1 and 2 are equal: the earlier
    assert state.best == {"eval/success": 0.7, "update": 1.0, "since": 0.0}
    found = choice(folder)
    assert (found.metric, found.value, found.update, found.since) == ("eval/success", 0.7, 1, 0)
    run(tmp_path, updates=1)
    assert weights(folder, "0001") == weights(tmp_path, "0001")


def test_another_metric_chooses_otherwise(tmp_path):
    run(tmp_path, keep_best="eval/score")
    assert choice(tmp_path).update == 3
    assert choice(tmp_path).value == pytest.approx(0.9)


def test_without_it_nothing_more_is_kept_or_written(tmp_path):
    run(tmp_path, keep_best=None)
    assert kept(tmp_path) == ["0003", "0004"]
    assert choice(tmp_path) is None


def test_an_update_without_a_checkpoint_gets_one_if_it_is_the_best(tmp_path):
    run(tmp_path, checkpoint_every=3)
    assert kept(tmp_path) == ["0001", "0003", "0004"]


def test_the_starting_policy_can_be_the_best(tmp_path):
    run(tmp_path, updates=3, scores=[0.9, 0.1, 0.2, 0.3])
    assert kept(tmp_path) == ["0000", "0002", "0003"]
    assert choice(tmp_path).update == 0
    saved = torch.nn.Module.state_dict(pretrained_toy().model)
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoints" / "0000").state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in saved.items())


def test_choosing_changes_nothing_about_the_run(whole, tmp_path):
    run(tmp_path, updates=3, keep_best=None)
    assert weights(whole[0], "0003") == weights(tmp_path, "0003")


def test_at_most_two_more_are_on_disk_at_any_time(tmp_path, monkeypatch):
    most, save = [], Checkpoints.save

    def counting(self, learner, state):
        def count(folder, write=learner.engine.save):
            write(folder)
            most.append(len(list(self._folder.iterdir())))

        with monkeypatch.context() as patch:
            patch.setattr(learner.engine, "save", count)
            return save(self, learner, state)

    monkeypatch.setattr(Checkpoints, "save", counting)
    run(tmp_path)
    assert max(most) == 2 + 2


# --- interrupted -------------------------------------------------------------------------------------------


def killed_while_saving(monkeypatch, folder, update, when):
    """A run whose power goes off in the save after `update`, before or after the folder has its name."""
    save = Checkpoints.save

    def failing(self, learner, state):
        if state.update == update and when == "before":
            raise KeyboardInterrupt
        path = save(self, learner, state)
        if state.update == update:
            raise KeyboardInterrupt
        return path

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", failing)
        with pytest.raises(KeyboardInterrupt):
            run(folder)


@pytest.mark.parametrize(
    ("update", "when", "best"),
    [(0, "before", None), (0, "after", 0), (1, "before", 0), (1, "after", 1), (3, "before", 1)],
)
def test_killed_around_a_save_and_resumed_it_is_as_in_one_go(
    whole, tmp_path, monkeypatch, update, when, best
):
    """1 is the new best, evaluated and lost, or saved; 3 comes after it; 0 is before there is anything."""
    killed_while_saving(monkeypatch, tmp_path, update, when)
    if best is None:
        assert choice(tmp_path) is None
    else:
        assert choice(tmp_path).update == best
        assert f"{best:04d}" in kept(tmp_path)
    folder, expected = whole
    assert run(tmp_path, resume=True)[1] == expected
    assert kept(tmp_path) == kept(folder)
    for name in kept(folder):
        assert weights(tmp_path, name) == weights(folder, name)
    assert choice(tmp_path) == choice(folder)
    text = (tmp_path / "metrics.jsonl").read_text()
    assert [json.loads(line)["update"] for line in text.splitlines()] == list(range(5))


def test_a_resume_goes_on_from_the_newest_not_from_the_best(whole, tmp_path):
    run(tmp_path, updates=3)
    assert run(tmp_path, resume=True)[1] == whole[1]
    assert kept(tmp_path) == kept(whole[0])


def test_a_run_that_kept_none_chooses_from_its_resume_on(tmp_path):
    """Its best evaluation was after 1 update, but that checkpoint is gone; later ones can be kept."""
    run(tmp_path, updates=3, keep_best=None)
    assert kept(tmp_path) == ["0002", "0003"]
    _, state = run(tmp_path, resume=True)
    assert state.best == {"eval/success": 0.4, "update": 4.0, "since": 4.0}
    assert choice(tmp_path).since == 4


def test_a_best_that_happens_to_be_there_is_kept(tmp_path):
    """As an older version wrote it: without the first evaluation that it was chosen among."""
    run(tmp_path, updates=1, keep_best=None)
    file = tmp_path / "checkpoints" / "0001" / "trainer.pt"
    document = torch.load(file, weights_only=True)
    del document["best"]["since"]
    torch.save(document, file)
    run(tmp_path, resume=True)
    assert kept(tmp_path) == ["0001", "0003", "0004"]
    assert choice(tmp_path).since == 0


def test_another_metric_on_resume_chooses_anew(tmp_path):
    run(tmp_path, updates=3)
    _, state = run(tmp_path, resume=True, keep_best="eval/score")
    assert state.best == {"eval/score": 0.6, "update": 4.0, "since": 4.0}
    assert kept(tmp_path) == ["0003", "0004"]


def test_a_metric_that_no_evaluation_gives_is_an_error_before_anything_is_trained(tmp_path):
    there = "keep_best=eval/pass_at/4.*There are: eval/score, eval/success$"
    with pytest.raises(CheckpointError, match=there):
        run(tmp_path, keep_best="eval/pass_at/4")
    assert not (tmp_path / "checkpoints").exists()


def test_options_that_a_checkpoint_did_not_know_are_filled_in(tmp_path):
    toy = pretrained_toy()
    learner = make_learner(tiny_model(len(toy.tokenizer)))

    def checkpoints(config, **options):
        return Checkpoints(tmp_path, keep=1, tokenizer=toy.tokenizer, config=config, **options)

    path = checkpoints({"eval": {"tasks": 4}}).save(learner, TrainState(1))
    now = {"eval": {"tasks": 4, "samples": 1}}
    with pytest.raises(CheckpointError, match="eval.samples"):
        checkpoints(now).restore(path, learner)
    upgraded = checkpoints(now, upgrade=lambda saved: {"eval": {"samples": 1, **saved["eval"]}})
    assert upgraded.restore(path, learner).update == 1
