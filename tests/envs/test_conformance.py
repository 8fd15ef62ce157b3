"""The conformance kit: ALFWorld passes it, and it catches every kind of broken environment."""

from __future__ import annotations

import pytest

from envs.alfworld import AlfworldEnv
from envs.alfworld.engine import NOTHING_HAPPENS
from envs.checks import NonConforming, check_env
from envs.watched import global_states, other_global_state
from tests.envs import broken
from tests.envs.broken import Count, Counter
from tests.envs.small_games import kitchen, porch


@pytest.mark.parametrize("anchor", ["state", "text"])
def test_alfworld_conforms(anchor):
    def refused(outcome):
        return outcome.observation.text == NOTHING_HAPPENS

    check_env(lambda: AlfworldEnv(max_steps=12, anchor=anchor), [kitchen(), porch()], refused=refused)


def test_the_smallest_environment_conforms():
    check_env(Counter, [Count()], refused=lambda outcome: False)


@pytest.mark.parametrize(
    ("environment", "promise"),
    [
        (broken.StepsBeforeReset, "before reset"),
        (broken.StepsAfterEnd, "after the end"),
        (broken.TakesAnySnapshot, "foreign value"),
        (broken.NeverEnds, "ends within"),
        (broken.TimeIsSuccess, "no success"),
        (broken.TerminatesOnTime, "not terminated"),
        (broken.UsesGlobalRandom, "global random"),
        (broken.DependsOnHistory, "first observation"),
        (broken.MutableSnapshot, "restore"),
        (broken.SharesState, "another instance|continuation"),
        (broken.NoInstruction, "instruction"),
        (broken.ListsAList, "tuple"),
        (broken.ListsTwice, "twice"),
        (broken.ScoresTwo, "score"),
        (broken.RewardsNan, "finite"),
        (broken.ScoresNan, r"score is in \[0, 1\], got nan"),
        (broken.RewardsNothing, "outcome.reward is a number, got None"),
        (broken.SaysPerhaps, "outcome.terminated is true or false, got None"),
        (broken.SolvedButGoingOn, "a step that solves the task terminates: set terminated"),
        (broken.ShowsBytes, "observation.text is a string, got a bytes"),
        (broken.AnchorsAList, "observation.anchor is a string, got a list"),
        (broken.InstructsInPieces, "instruction holds the task sentence after reset, is \\['count"),
        (
            broken.StepsAsGymnasium,
            "step returns .*terminated, truncated, info.*wrap the environment in .*FromGym",
        ),
        (broken.StepsAsOldGym, "step returns .*reward, done, info.*wrap the environment in .*FromGymnasium"),
        (broken.ResetsAsGymnasium, "reset returns .*info.*wrap the environment in .*FromGymnasium"),
        (broken.ReturnsText, "step returns a str: return an envs.base.Outcome"),
        (broken.RestoresNothing, "restore returns a NoneType: return an envs.base.Observation"),
        (broken.DrawsFromNumpy, "step draws from the global random state of `numpy.random`.*derive"),
        (broken.DrawsFromTorch, "step draws from the global random state of `torch`.*derive"),
        (broken.SeedsTheWorld, "step draws from the global random state of `random`.*derive"),
        (
            broken.DrawsAndPutsBack,
            "under another global random state gives the same.*at step 0 observation was",
        ),
        (broken.DrawsAnew, "a replay gives the same outcomes; at step 0 observation was .*drew.*derive"),
        (broken.NamesItself, "a replay gives the same outcomes; at step 0 observation was .*drew.*derive"),
        (broken.ResetsAtRandom, "reset draws from the global random state of `numpy.random`"),
    ],
)
def test_a_broken_environment_is_caught(environment, promise):
    with pytest.raises(NonConforming, match=promise) as caught:
        check_env(environment, [Count()])
    assert "'count'" in str(caught.value)


def test_a_crash_on_a_strange_action_is_not_hidden():
    with pytest.raises(UnicodeEncodeError):
        check_env(broken.CrashesOnUnicode, [Count()])


def test_a_listed_command_that_is_refused_is_caught():
    with pytest.raises(NonConforming, match="listed command"):
        check_env(Counter, [Count()], refused=lambda outcome: outcome.observation.text == "at -1")


def test_the_states_that_are_watched_are_left_as_they_were():
    before = global_states()
    with other_global_state(1):
        assert all(global_states()[name] != state for name, state in before.items())
    check_env(Counter, [Count()])
    assert global_states() == before


def test_an_instance_that_is_handed_out_again_is_caught():
    env = Counter()
    with pytest.raises(NonConforming, match="make_env returns the same instance again"):
        check_env(lambda: env, [Count()])


def test_the_kit_needs_a_task():
    with pytest.raises(ValueError, match="no tasks"):
        check_env(Counter, [])
