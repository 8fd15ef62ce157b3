"""3SPO's search on the toy corridor, every number worked out by hand."""

import io

import numpy as np
import pytest
from rich.console import Console

from agent.prompts.builder import PromptBuilder, load_template
from agent.prompts.turns import TurnFormat
from agent.ranks import ALONE
from agent.rollout.groups import RolloutError
from agent.rollout.options import RolloutOptions
from credit.pipeline import Pipeline
from rl.checkpoint import TrainState
from rl.learner.changed_weights import Handed
from rl.learner.mismatch import Prepared
from rl.search.searcher import Searcher
from rl.settings import RolloutSettings, RunSchedule
from rl.tracking.metrics import describe
from rl.tracking.progress import ProgressPanel
from rl.tracking.timing import Clock
from tests.agent.streaming import BrokenPool, ShuffledPool
from tests.toy import ScriptedPolicy, ToyEnv, ToyTask, respond, toy_tokenizer

TOKENIZER = toy_tokenizer()
TURNS = TurnFormat(TOKENIZER)
NEAR = ToyTask("near-0", "near", "train", rooms=2, start=1, key=1)
STAGES = {"tree_search": {"g_max": 4}, "returns": {"invalid_penalty": 0.0}, "sso": {"skip_solved": False}}


class Noting:
    """A learner that trains nothing and keeps what it was given."""

    def __init__(self):
        self.version, self.updates, self.handed, self.ranks = 0, [], Handed(()), ALONE

    def named_weights(self):
        return []

    def prepare(self, rows):
        return Prepared(rows)

    def update(self, prepared, advantage, *, update, aux=None):
        self.version += 1
        self.updates.append((list(prepared.rows), np.array(advantage)))
        return {"train/optimizer_steps": 1.0, "train/loss": float(len(self.updates))}


def search(said, *, state=None, environments=ToyEnv, group_size=3, on_failure="stop", **env):
    """One task; `said` are the policy's actions in the order it is asked."""
    words = iter(said)
    policy = ScriptedPolicy(TOKENIZER, lambda text, rng: respond(next(words)))
    learner = Noting()
    searcher = Searcher(
        policy,
        learner,
        Pipeline.from_config({**STAGES, "state_mean": {}}),
        settings=RolloutSettings(
            environments,
            [NEAR],
            PromptBuilder(TURNS, "append", load_template("alfworld_bare"), 2, 4000, 40),
            groups=1,
            group_size=group_size,
            options=RolloutOptions(on_failure=on_failure),
        ),
        schedule=RunSchedule(1, 0),
    )
    clock = Clock(1, ProgressPanel(1, 1, Console(file=io.StringIO())))
    done = searcher(TrainState(credit={} if state is None else {"sso": state}), clock)
    assert next(words, None) is None and policy.live == set()
    assert all(describe(name) for name in done.metrics)
    return done, learner


SOLVED = [
    *("go left", "take key", "go right", "take key"),  # in room 1: the first does nothing
    *("go right", "go left", "take key", "go right"),  # with the key: only `go right` does something
    *("open door", "go left", "go left", "go right"),  # at the door
]


@pytest.mark.parametrize("pool", [None, ShuffledPool])
def test_a_search_trains_after_every_step_and_goes_on_from_the_best(pool):
    """Nothing is known: S = 1 everywhere, w = 1/2, so r is 1/2 for a change of state and 1 for the door."""
    done, learner = search(SOLVED, environments=pool(ToyEnv) if pool else ToyEnv)
    expected = [[-0.375, 0.125, 0.125, 0.125], [0.25, -0.25, -0.25, 0.25], [0.5, 0.0, 0.0, -0.5]]
    assert len(learner.updates) == 3
    for (rows, advantage), want in zip(learner.updates, expected, strict=True):
        assert advantage == pytest.approx(want)
        assert len(rows) == 4 and len({row.trajectory for row in rows}) == 4
        for row in rows:
            ((start, end, _),) = row.spans  # the answer alone; what came before is its prompt
            assert TURNS.decode(row.ids[start:end].tolist()).endswith("</action>") and end == len(row.ids)
    ((found,),) = done.groups
    assert [step.action for step in found.steps] == ["take key", "go right", "open door"]
    assert [step.t for step in found.steps] == [0, 1, 2]
    assert found.success and found.score == 1.0
    assert done.credit.advantage == pytest.approx([0.125, 0.25, 0.5])
    assert done.credit.returns == pytest.approx([0.5, 0.5, 1.0])
    assert done.credit.state["sso"] == {
        "t": 2,
        "counts": {"1|False": [1, 1], "1|True": [1, 1], "2|True": [1, 1]},
    }
    assert done.metrics["search/rounds"] == 3 and done.metrics["search/answers"] == 12
    assert done.metrics["search/branched"] == 3 and done.metrics["search/turned_back"] == 0
    assert done.metrics["train/optimizer_steps"] == 3 and done.metrics["train/loss"] == 2.0  # sum, and mean


def test_what_is_solved_is_walked_through_untrained():
    """S = exp(-50 ln 2) where one of one succeeded: one answer per state, and nothing to compare it with."""
    done, _ = search(SOLVED)
    again, learner = search(["take key", "go right", "open door"], state=done.credit.state["sso"])
    assert learner.updates == [] and again.groups[0][0].success
    assert again.credit.advantage.tolist() == [0.0, 0.0, 0.0]
    assert again.credit.state["sso"]["counts"]["1|True"] == [2, 2]
    assert again.metrics["search/answers"] == 3 and again.metrics["search/branched"] == 0


HOPELESS = {"t": 13, "counts": {"1|True": [12, 0]}}


@pytest.mark.parametrize("pool", [None, ShuffledPool])
def test_a_hopeless_state_turns_the_search_back_to_the_best_answer_left(pool):
    """Twelve failures with the key: n = 0. The next best is `go right`, gone to again from the start."""
    make = lambda: ToyEnv(max_steps=2)  # noqa: E731
    said = ["take key", "go right", "go left", "go left", *["go left", "take key", "go left", "take key"]]
    done, learner = search(said, state=HOPELESS, environments=pool(make) if pool else make, group_size=2)
    turned, ended = done.groups[0]
    assert [step.action for step in turned.steps] == ["take key"]
    assert [step.action for step in ended.steps] == ["go right", "go left"]
    assert not turned.success and not ended.success and ended.truncated
    assert done.metrics["search/turned_back"] == 1 and done.metrics["search/rounds"] == 3
    # start: N = 0, w = 1/2: r = 1/2 where something changed. Room 2: the same
    assert learner.updates[0][1] == pytest.approx([0.25, 0.25, -0.25, -0.25])
    assert learner.updates[1][1] == pytest.approx([0.25, -0.25, 0.25, -0.25])
    counts = done.credit.state["sso"]["counts"]
    assert counts["1|True"] == [13, 0] and counts["1|False"] == [2, 0] and counts["2|False"] == [1, 0]
    assert done.credit.state["sso"]["t"] == 15


def test_the_first_state_is_never_given_up():
    done, _ = search(
        ["take key"],
        state={"t": 21, "counts": {"1|False": [20, 0]}},
        environments=lambda: ToyEnv(max_steps=1),
    )
    assert len(done.groups[0]) == 1


def test_an_answer_whose_environment_fails_is_left_out():
    """The second answer's copy dies (forks are no openings, so by its step): three are compared."""

    class Dying(ShuffledPool):
        def _step(self, key, action):
            if action == "go right" and not self._traces[key].inherited:
                raise_on = self._envs[key]
                raise_on._done = True  # a step after the end raises
            super()._step(key, action)

    def run(on_failure):
        said = ["go left", "take key", "go right", "go left"]
        pool = Dying(lambda: ToyEnv(max_steps=1))
        return search(said, environments=pool, on_failure=on_failure, group_size=3)

    done, learner = run("drop")
    assert learner.updates[0][1] == pytest.approx([-1 / 6, 1 / 3, -1 / 6])
    assert done.metrics["rollout/failed/error"] == 1 and done.metrics["rollout/lost_groups"] == 0
    with pytest.raises(RolloutError, match="before reset or after the end"):
        run("stop")
    with pytest.raises(RolloutError, match="no task could be searched"):
        search([], environments=BrokenPool(ToyEnv, lambda number, t: True), on_failure="drop")


def test_a_method_without_a_state_score_is_refused():
    with pytest.raises(ValueError, match="needs the state score of `sso`"):
        Searcher(
            None,
            None,
            Pipeline.from_config({"tree_search": {}, "returns": {}, "grpo": {}}),
            settings=None,
            schedule=RunSchedule(1, 0),
        )
