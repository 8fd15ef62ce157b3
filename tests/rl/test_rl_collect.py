"""Further rollouts for dropped groups: which tasks, which numbers, which groups, and a run that resumes."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from agent.prompts.builder import PromptBuilder
from agent.prompts.turns import TurnFormat
from agent.rollout.groups import RolloutError
from agent.rollout.options import RolloutOptions
from configs.params import param
from credit.base import Filter
from credit.stages.dynamic_sampling import DynamicSampling
from rl.checkpoint import Checkpoints, TrainState
from rl.collect import collect
from rl.rows.assemble import step_table
from rl.settings import RolloutSettings
from rl.task_order import draw
from rl.tracking.metrics import describe
from rl.tracking.tracker import read_metrics
from tests.agent.streaming import BrokenPool
from tests.rl.helpers import TEMPLATE, make_learner, toy_run
from tests.rl.test_loop import played, records
from tests.toy import ScriptedPolicy, ToyEnv, scripted_expert, tiny_model, toy_tasks, toy_tokenizer

TASKS = toy_tasks(20, seed=1, rooms=2)
TOKENIZER = toy_tokenizer()
PROMPTS = PromptBuilder(
    turns=TurnFormat(TOKENIZER),
    form="append",
    template=TEMPLATE,
    history=0,
    window=384,
    max_response_tokens=16,
)


@dataclass(frozen=True)
class Only(Filter):
    """Keeps the groups whose task is even in `TASKS`; the test knows which these are."""

    max_batches: int = param(10, "rollouts", low=1)
    refill: str = param("missing", "tasks of a further rollout", choices=("missing", "batch", "batch_all"))

    def keep(self, table):
        order = [task.id for task in draw(TASKS, 200, position=0, seed=3)]
        return np.array([even(order[number]) for number in table.group], dtype=bool)


def even(task_id):
    return int(task_id.rpartition("-")[2]) % 2 == 0


def rolled(
    *filters,
    groups=4,
    position=0,
    max_parallel=64,
    error=0.5,
    on_progress=None,
    environments=ToyEnv,
    group_size=3,
    **options,
):
    policy = ScriptedPolicy(TOKENIZER, scripted_expert(error=error))
    settings = RolloutSettings(
        environments,
        TASKS,
        PROMPTS,
        groups=groups,
        group_size=group_size,
        max_parallel=max_parallel,
        early_stop=options.pop("early_stop", False),
        options=RolloutOptions(**options),
    )
    return collect(policy, settings, filters, position=position, seed=3, on_progress=on_progress)


def numbers(collected):
    return [group[0].group for group in collected.groups]


def told(collected):
    return [(tr.task_id, tr.group, tr.index, tr.seed, tr.success) for g in collected.groups for tr in g]


def expected(count, position=0):
    """Numbers of the first `count` even tasks from `position` on."""
    order = [task.id for task in draw(TASKS, 200, position=0, seed=3)]
    return [n for n in range(position, 200) if even(order[n])][:count]


def test_without_filters_it_is_one_rollout():
    collected = rolled(position=8)
    assert numbers(collected) == [8, 9, 10, 11] and collected.extra_tasks == 0
    assert collected.metrics["rollout/batches"] == 1.0
    assert collected.metrics["rollout/dropped_groups"] == 0.0


@pytest.mark.parametrize("position", [0, 7, 19])
def test_dropped_groups_are_replaced_by_the_next_tasks_in_order(position):
    collected = rolled(Only(), position=position)
    want = expected(4, position)
    assert numbers(collected) == want
    assert all(even(tr.task_id) for group in collected.groups for tr in group)
    # as many as are missing, so the last task drawn is the last one kept
    assert collected.extra_tasks == want[-1] + 1 - position - 4
    assert collected.metrics["rollout/dropped_groups"] == collected.extra_tasks
    assert [tr.task_id for tr in collected.groups[0]] == [draw(TASKS, 1, position=want[0], seed=3)[0].id] * 3


def test_whole_batches_are_cut_or_not():
    cut, whole = rolled(Only(refill="batch"), groups=5), rolled(Only(refill="batch_all"), groups=5)
    tries = cut.metrics["rollout/batches"]
    assert tries == whole.metrics["rollout/batches"] > 1
    kept = [n for n in expected(50) if n < 5 * tries]
    assert len(kept) > 5
    assert numbers(cut) == kept[:5] and numbers(whole) == kept
    assert cut.extra_tasks == whole.extra_tasks == 5 * (tries - 1)
    assert cut.metrics["rollout/dropped_groups"] == 5 * tries - 5


@pytest.mark.parametrize("refill", ["missing", "batch", "batch_all"])
def test_the_last_try_is_kept_whole(refill):
    """Nothing passes: the update has its groups all the same."""
    collected = rolled(DynamicSampling(max_batches=3, refill=refill), error=0.0)
    assert numbers(collected) == [8, 9, 10, 11] and collected.extra_tasks == 8
    assert collected.metrics["rollout/batches"] == 3.0
    assert rolled(DynamicSampling(max_batches=1), error=0.0).extra_tasks == 0


def test_what_passes_goes_before_what_fills_up():
    collected = rolled(Only(max_batches=2, refill="batch"), groups=6)
    passing = [n for n in expected(50) if n < 12]
    others = [n for n in range(6, 12) if n not in passing]
    assert numbers(collected) == sorted((passing + others)[:6])


def test_every_filter_has_a_say_and_the_smallest_limit_counts():
    collected = rolled(DynamicSampling(max_batches=40), Only(max_batches=30), groups=2)
    assert collected.metrics["rollout/batches"] < 30  # so none was filled up
    for group in collected.groups:
        assert even(group[0].task_id) and len({tr.success for tr in group}) == 2
    assert rolled(DynamicSampling(max_batches=2), Only(), error=0.0).metrics["rollout/batches"] == 2.0


def test_neither_seats_nor_other_groups_move_a_trajectory():
    wide, narrow = rolled(DynamicSampling()), rolled(DynamicSampling(), max_parallel=2)
    assert told(wide) == told(narrow)
    everything = rolled(groups=4 + wide.extra_tasks)
    assert set(told(wide)) <= set(told(everything))


def test_metrics_count_what_was_dropped():
    """Else success would look like that of mixed groups."""
    collected = rolled(DynamicSampling(max_batches=5), error=0.3)
    everything = rolled(groups=4 + collected.extra_tasks, error=0.3)
    for name in ("rollout/success", "rollout/tokens", "rollout/mixed_groups"):
        assert collected.metrics[name] == pytest.approx(everything.metrics[name])


@pytest.mark.parametrize("max_parallel", [4, 64])
def test_stopping_early_changes_nothing_but_the_work(max_parallel):
    """Groups behind the one that fills the batch are cut in any case, so they need not be played."""
    options = dict(groups=6, max_parallel=max_parallel)
    whole = rolled(Only(refill="batch"), **options)
    early = rolled(Only(refill="batch"), early_stop=True, **options)
    assert told(early) == told(whole)
    assert early.extra_tasks == whole.extra_tasks  # the tasks were drawn all the same
    stopped = early.metrics["rollout/stopped_groups"]
    assert stopped == 6 + whole.extra_tasks - numbers(whole)[-1] - 1 > 0
    assert whole.metrics["rollout/stopped_groups"] == 0
    played = rolled(groups=numbers(whole)[-1] + 1)  # what counts is all before, and nothing behind
    for name in ("rollout/success", "rollout/tokens", "rollout/mixed_groups"):
        assert early.metrics[name] == pytest.approx(played.metrics[name])


@pytest.mark.parametrize("refill", ["missing", "batch_all"])
def test_where_every_group_counts_none_is_stopped(refill):
    whole, early = (rolled(Only(refill=refill), groups=5, early_stop=early) for early in (False, True))
    assert told(early) == told(whole) and early.metrics == whole.metrics


def broken(*openings):
    """A pool that loses these trajectories after their first step; openings count from 0 over all tries."""
    return BrokenPool(ToyEnv, lambda number, t: number in openings and t == 1)


def test_a_failed_trajectory_gives_no_row():
    collected = rolled(environments=broken(4), on_failure="drop")
    assert [len(group) for group in collected.groups] == [3, 2, 3, 3]
    table = step_table(collected.groups)
    assert len(set(table.trajectory.tolist())) == 11
    assert [tr.index for tr in collected.groups[1]] == [0, 2]
    assert {n: v for n, v in collected.metrics.items() if "fail" in n or "lost" in n} == {
        "rollout/failed": 1.0,
        "rollout/failed/lost": 1.0,
        "rollout/lost_groups": 0.0,
    }
    assert all(describe(name) for name in collected.metrics)
    alike = [tr for tr in told(rolled()) if tr[1:3] != (1, 1)]
    assert told(collected) == alike


def test_a_lost_group_is_replaced_by_the_next_task_and_resuming_counts_it():
    collected = rolled(environments=broken(3, 5), on_failure="drop", position=8)
    assert numbers(collected) == [8, 10, 11, 12] and collected.extra_tasks == 1
    assert collected.metrics["rollout/lost_groups"] == 1.0
    assert collected.metrics["rollout/batches"] == 2.0
    replacement = rolled(position=12, groups=1)
    assert told(collected)[-3:] == told(replacement)


def test_a_rerolled_group_is_whole():
    collected = rolled(environments=broken(4), on_failure="reroll")
    assert [len(group) for group in collected.groups] == [3] * 4 and collected.extra_tasks == 0
    assert collected.metrics["rollout/rerolled_groups"] == 1.0


def test_filters_and_failures_together():
    """The group lost in the first try is one of those that are missing in the second."""
    collected = rolled(Only(), environments=broken(0, 1), on_failure="drop")
    assert numbers(collected) == [n for n in expected(6) if n != 0][:4]


def test_the_last_try_is_filled_up_after_a_loss():
    collected = rolled(
        DynamicSampling(max_batches=1), error=0.0, environments=broken(0, 1), on_failure="drop"
    )
    assert numbers(collected) == [1, 2, 3, 4]


def test_if_every_group_fails_the_run_ends_and_says_why():
    with pytest.raises(RolloutError, match="none of 4 groups could be played: lost: worker of 1 died"):
        rolled(environments=BrokenPool(ToyEnv, lambda number, t: t == 1), on_failure="drop")
    with pytest.raises(RolloutError, match="set rollout.on_failure to drop or reroll"):
        rolled(environments=broken(2))


def test_progress_counts_on():
    seen = []
    collected = rolled(Only(), on_progress=lambda done, tokens: seen.append((done, tokens)))
    assert seen == sorted(seen)
    assert seen[-1] == (3 * (4 + collected.extra_tasks), collected.metrics["rollout/tokens"])


RUN = dict(groups=3, group_size=4, credit=("dynamic_sampling", "returns", "grpo"))


def test_a_run_numbers_its_groups_once_and_resumes_where_it_was(tmp_path):
    config = {"train": {"lr_schedule": "constant", "updates": 4}, "seed": 0}
    whole, state = toy_run(tmp_path / "whole", updates=4, config=config, checkpoint_every=2, **RUN)
    assert state.extra_tasks > 0
    assert sum(r["rollout/dropped_groups"] for r in records(tmp_path / "whole")) == state.extra_tasks
    for updates in (2, 4):
        resumed, again = toy_run(
            tmp_path / "parts", updates=updates, resume=updates == 4, config=config, checkpoint_every=2, **RUN
        )
    assert again == state
    assert played(tmp_path / "parts") == played(tmp_path / "whole")
    assert records(tmp_path / "parts") == records(tmp_path / "whole")
    for (name, first), (_, second) in zip(whole.named_weights(), resumed.named_weights(), strict=True):
        assert torch.equal(first, second), name
    seeds = [tr[1] for trajectories in played(tmp_path / "whole").values() for tr in trajectories]
    assert len(set(seeds)) == len(seeds) == 4 * 3 * 4


def test_the_time_of_further_rollouts_is_rollout_time(tmp_path):
    toy_run(tmp_path, updates=1, **RUN)
    record = list(read_metrics(tmp_path / "metrics.jsonl"))[-1]
    speed = record["rollout/tokens"] / record["time/rollout"]
    assert record["speed/rollout_tokens_per_s"] == pytest.approx(speed)


def test_a_checkpoint_from_before_it_was_counted_is_at_the_start_of_its_tasks(tmp_path):
    learner = make_learner(tiny_model(len(TOKENIZER)))
    checkpoints = Checkpoints(tmp_path, keep=1, tokenizer=TOKENIZER, config={})
    path = checkpoints.save(learner, TrainState(update=2, extra_tasks=5))
    assert checkpoints.restore(path, learner) == TrainState(update=2, extra_tasks=5)
    document = torch.load(path / "trainer.pt", weights_only=True)
    del document["extra_tasks"]
    torch.save(document, path / "trainer.pt")
    assert checkpoints.restore(path, learner) == replace(TrainState(update=2), extra_tasks=0)
