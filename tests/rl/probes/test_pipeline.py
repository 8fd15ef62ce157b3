"""What a pipeline gets of the probes, and what it costs."""

import copy
from dataclasses import dataclass

import pytest

from credit.base import Reweighter
from credit.pipeline import Pipeline
from credit.registry import build_stage
from credit.signals import Estimated
from rl.learner.reference import FrozenCopy
from rl.probes.probes import COLUMNS, ProbeOptions, Probes
from rl.rows.assemble import step_table
from rl.settings import RolloutSettings
from rl.tracking.metrics import TIMED, describe
from tests.rl.helpers import make_learner
from tests.toy import (
    ScriptedPolicy,
    ToyEnv,
    scripted_expert,
    toy_tasks,
)


@dataclass(frozen=True)
class Reader(Reweighter):
    """A stage that wants the token columns of a list and changes nothing."""

    names = COLUMNS

    @property
    def token_columns(self):
        return frozenset(self.names)

    def reweight(self, table, signals, context):
        assert all(table.tokens[name].shape == (table.length.sum(),) for name in self.names)
        return Estimated(signals.advantage)


def probes(world, *stages, services=None, **options):
    learner = make_learner(world.model)
    settings = RolloutSettings(ToyEnv, toy_tasks(3, seed=2), world.prompts, groups=3, group_size=4)
    return Probes(
        ScriptedPolicy(world.tokenizer, scripted_expert(0.0)),
        learner,
        Pipeline((build_stage("returns", {}), build_stage("gigpo", {}), *stages), "mine"),
        settings=settings,
        options=ProbeOptions(**options),
        services=services or {},
        seed=5,
    )


def test_a_pipeline_gets_what_it_asks_for_and_every_figure_is_documented(world):
    table = step_table(world.groups)
    probed = probes(world, Reader(), reference=FrozenCopy(copy.deepcopy(world.model)))(world.groups, table)
    Pipeline((build_stage("grpo", {}), Reader())).run(probed.table, probed.services)
    assert {name.split("/")[1] for name in probed.metrics} == set(COLUMNS) - {"logp_sampled"}
    for name in probed.metrics:
        assert describe(name)[1]
        assert name.startswith(TIMED) == name.endswith("/seconds")


def test_a_pipeline_that_asks_for_nothing_costs_nothing(world):
    table = step_table(world.groups)
    probed = probes(world)(world.groups, table)
    assert probed.table is table
    assert probed.metrics == {}


def test_what_nothing_provides_is_refused_at_start_up(world):
    class Unknown(Reader):
        names = ("entropi",)

        @classmethod
        def name(cls):
            return "unknown"

    class Judge(Reader):
        names = ()
        requires = frozenset({"judge"})

    with pytest.raises(ValueError, match="'mine' reads the token column 'entropi'.*did you mean 'entropy'"):
        probes(world, Unknown())
    with pytest.raises(ValueError, match="reads the token column 'logp_ref'.*no reference model"):
        probes(world, Reader())
    with pytest.raises(ValueError, match="needs the service 'judge'"):
        probes(world, Judge())
    assert probes(world, Judge(), services={"judge": print})
