"""Groups of trajectories: the policy and the environments, in turns.

All trajectories in flight generate together. One that ends leaves its seat to the next in line, so the
policy always works on as many requests as there are seats, and never for a finished trajectory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.parse import parse
from agent.policy import Policy, Sampling
from agent.prompts import Conversation, PromptBuilder
from agent.types import Generation, Group, Request, Step, Trajectory
from configs.seeds import derive
from envs.base import Env, Observation, Task

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class _Live:
    """A trajectory in flight: its environment, its prompts, and the step being made."""

    trajectory: Trajectory
    key: int
    env: Env
    conversation: Conversation
    observation: Observation
    prompt_ids: list[int]
    fresh: bool


def rollout(
    policy: Policy,
    sampling: Sampling,
    make_env: Callable[[], Env],
    tasks: Sequence[Task],
    *,
    group_size: int,
    prompts: PromptBuilder,
    max_parallel: int,
    seed: int,
    group_offset: int = 0,
    names: Sequence[str] | None = None,
    on_progress: Progress | None = None,
) -> list[Group]:
    """Plays every task `group_size` times.

    Args:
        policy: Generates the responses; its window must hold the prompts'.
        sampling: How tokens are drawn.
        make_env: Makes an environment; at most `max_parallel` are made, and reused.
        tasks: Group `group_offset + i` plays `tasks[i]`.
        group_size: Trajectories a task; they share the task and its initial state.
        prompts: Turns observations into tokens, and leaves room for a response.
        max_parallel: Trajectories in flight at once. Results do not depend on it (up to float batching).
        seed: Everything random derives from it and from (group, index, t).
        group_offset: Number of the first group.
        names: One a task, that its seeds derive from instead of the group's number; so what a task is
            played like does not depend on which others are played.
        on_progress: Called after each round of steps with (trajectories done, tokens sampled).

    Returns:
        The groups in order of `tasks`, members in order of `index`.

    Raises:
        ValueError: `max_parallel` or `group_size` below 1, or a window smaller than the prompts'.
    """
    if max_parallel < 1 or group_size < 1:
        raise ValueError(f"max_parallel ({max_parallel}) and group_size ({group_size}) must be at least 1")
    if policy.window < prompts.window:
        raise ValueError(f"the policy's window ({policy.window}) is below prompt.window ({prompts.window})")
    groups: list[Group] = [[] for _ in tasks]
    waiting = deque((g, k) for g in range(len(tasks)) for k in range(group_size))
    live: list[_Live] = []
    envs: list[Env] = []
    idle_envs: list[Env] = []
    done = sampled = 0
    try:
        while waiting or live:
            while waiting and len(live) < max_parallel:
                g, k = waiting.popleft()
                if not idle_envs:
                    envs.append(make_env())
                    idle_envs.append(envs[-1])
                env = idle_envs.pop()
                group = group_offset + g
                name = group if names is None else names[g]
                seeds = derive(seed, "env", name), derive(seed, "trajectory", name, k)
                key = g * group_size + k
                one = _start(env, tasks[g], (group, k), key=key, prompts=prompts, seeds=seeds)
                groups[g].append(one.trajectory)
                live.append(one)
            generations = policy.generate([_request(one, prompts) for one in live], sampling)
            still: list[_Live] = []
            for one, generation in zip(live, generations, strict=True):
                sampled += len(generation.ids)
                if _step(one, generation, prompts, policy.version):
                    still.append(one)
                else:
                    done += 1
                    policy.release(one.key)
                    idle_envs.append(one.env)
            live = still
            if on_progress:
                on_progress(done, sampled)
    finally:
        for one in live:
            policy.release(one.key)
        for env in envs:
            env.close()
    return groups


def _start(
    env: Env, task: Task, place: tuple[int, int], *, key: int, prompts: PromptBuilder, seeds: tuple[int, int]
) -> _Live:
    """Resets `env` and makes the first prompt.

    `place` is (group, index) and `seeds` those of (environment, trajectory).
    """
    observation = env.reset(task, seeds[0])
    conversation = prompts.start(env.instruction)
    prompt_ids, fresh = conversation.prompt(observation)
    trajectory = Trajectory(
        task_id=task.id,
        family=task.family,
        instruction=env.instruction,
        group=place[0],
        index=place[1],
        seed=seeds[1],
    )
    return _Live(trajectory, key, env, conversation, observation, prompt_ids, fresh)


def _request(one: _Live, prompts: PromptBuilder) -> Request:
    t = len(one.trajectory.steps)
    seed = derive(one.trajectory.seed, t)
    return Request(one.key, one.prompt_ids, one.fresh, seed, prompts.max_response_tokens)


def _step(one: _Live, generation: Generation, prompts: PromptBuilder, version: int) -> bool:
    """Plays the response, records the step and makes the next prompt; returns whether there is one."""
    response = prompts.turns.decode(generation.ids)
    parsed = parse(response)
    outcome = one.env.step(parsed.action)
    trajectory = one.trajectory
    trajectory.steps.append(
        Step(
            t=len(trajectory.steps),
            observation=one.observation,
            prompt_ids=one.prompt_ids,
            fresh=one.fresh,
            response_ids=generation.ids,
            logp_sampled=generation.logps,
            finish=generation.finish,
            policy_version=version,
            response=response,
            thought=parsed.thought,
            action=parsed.action,
            well_formed=parsed.well_formed,
            admissible=one.observation.admits(parsed.action),
            reward=outcome.reward,
            next_observation=outcome.observation,
        )
    )
    if outcome.done:
        trajectory.success, trajectory.score = outcome.success, outcome.score
        trajectory.truncated = outcome.truncated
        return False
    one.observation = outcome.observation
    one.conversation.record(generation.ids, parsed.action)
    one.prompt_ids, one.fresh = one.conversation.prompt(outcome.observation)
    return True
