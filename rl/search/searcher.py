"""An update by search: tasks are explored depth first, and the policy is trained after every step of it.

What is tried, compared and trained on is `credit.tree_search`'s to say. All searches of an update move
together: in each round every search answers in one state, the answers are played in copies of the
environment, and one post-step update trains on all states that were branched in.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.policy import Policy, Sampling
from agent.rollout.groups import RolloutError
from agent.rollout.live import make_step
from agent.rollout.options import Progress
from agent.rollout.watchdog import Watchdog
from agent.types import Generation, Group, Request, Step, Trajectory
from configs.seeds import derive
from credit.pipeline import Pipeline
from credit.stages.sso import SSO, new_statistics, reloaded, update_statistics
from credit.stages.tree_search import TreeSearch
from envs.base import Outcome
from envs.pools.pool import EnvPool, opened
from rl.checkpoint import TrainState
from rl.learner.learner import Learner
from rl.probes.continuations import Resumed
from rl.rows.assemble import step_table, token_rows
from rl.search.places import Places
from rl.search.report import SearchReport
from rl.search.tree import Node, Search, Tried
from rl.settings import RolloutSettings, RunSchedule
from rl.sync import sync
from rl.task_order import draw
from rl.tracking.timing import Clock
from rl.update import Updated, first_task


class Searcher:
    """Makes updates by search.

    Args:
        policy: Samples, with the learner's weights at every call.
        learner: Trains.
        pipeline: With the stages `tree_search` and `sso`.
        settings: Tasks, environments and sampling.
        schedule: Seed of the run, and what is checked after each transfer of weights.

    Raises:
        ValueError: the pipeline has no `sso`, or asks for filters, services or token columns, which a search
            has none of.
    """

    def __init__(
        self,
        policy: Policy,
        learner: Learner,
        pipeline: Pipeline,
        *,
        settings: RolloutSettings,
        schedule: RunSchedule,
    ) -> None:
        self.policy, self.learner, self.pipeline = policy, learner, pipeline
        self.settings, self.seed, self.contract = settings, schedule.seed, schedule.contract
        self.tree_search = next(stage for stage in pipeline.steers if isinstance(stage, TreeSearch))
        scores = [stage for stage in pipeline.stages if isinstance(stage, SSO)]
        if not scores or pipeline.filters or pipeline.requires or pipeline.token_columns:
            raise ValueError(
                f"credit method {pipeline.name!r}: `tree_search` needs the state score of `sso` among the "
                "stages, and no filters, services or token columns; see configs/credit/3spo.yaml"
            )
        self.sso = scores[0]

    def __call__(self, state: TrainState, clock: Clock, on_progress: Progress | None = None) -> Updated:
        """Makes the update after `state`; all of its time is rollout.

        A failed environment costs its answer, or its task's search, whatever `on_failure` says but `stop`;
        time limits are not kept. The groups are each task's trajectories from the start, in the order they
        were found; they share steps. The advantage of a step is what it was trained with, 0 where it was the
        only answer.
        """
        told = "A search waits for environments or answers."
        watchdog = Watchdog(self.settings.options.watchdog_s, lambda: told)
        with clock("rollout"), watchdog, opened(self.settings.environments) as pool:
            run = _Run(self, pool, state, watchdog, on_progress)
            return run.play(first_task(state, self.settings))


class _Run:
    """One update."""

    def __init__(
        self,
        searcher: Searcher,
        pool: EnvPool,
        state: TrainState,
        watchdog: Watchdog,
        on_progress: Progress | None,
    ) -> None:
        self._s, self._watchdog, self._on_progress = searcher, watchdog, on_progress
        self._places = Places(pool, watchdog, stop=searcher.settings.options.on_failure == "stop")
        self._update, self._state = state.update + 1, state.credit
        self._statistics = self._state.get("sso") or new_statistics()
        if searcher.sso.compat_reload_t:
            self._statistics = reloaded(self._statistics)
        self._report = SearchReport()
        self._sampled = 0

    def play(self, position: int) -> Updated:
        """Searches until every task's search has ended."""
        try:
            searches = self._begin(position)
            while active := [search for search in searches if search.stack]:
                self._round(active)
                if self._on_progress:
                    self._on_progress(sum(len(search.found) for search in searches), self._sampled)
        finally:
            self._places.close()
        groups = [search.found for search in searches if search.found]
        if not groups:
            raise RolloutError(f"no task could be searched: {'; '.join(self._places.lost.values())}")
        table = step_table(groups, success_reward=self._s.settings.success_reward)
        credit = self._report.credit(groups, {**self._state, "sso": self._statistics})
        metrics = self._report.metrics(groups, self._places.counted(groups))
        return Updated(groups, table, credit, {**metrics, "rollout/tokens": float(self._sampled)})

    def _begin(self, position: int) -> list[Search]:
        """Opens the tasks."""
        settings = self._s.settings
        tasks = draw(settings.tasks, settings.groups, position=position, seed=self._s.seed)
        searches = {}
        for number, task in enumerate(tasks, start=position):
            search = Search(task, number, derive(self._s.seed, "env", number))
            searches[self._places.open(search)] = search
        for key, reply in self._places.replies(searches).items():
            searches[key].instruction = reply.instruction
            searches[key].stack.append(Node([], reply.observation, key))
        return list(searches.values())

    def _round(self, active: Sequence[Search]) -> None:
        """One state of every search: answers, plays, trains, goes on.

        It trains before it goes on, so that the states below are answered by a policy that has learnt from
        this one: that is what 3SPO's post-step updates are for. Returns decide which answers are followed.
        """
        nodes = self._go(self._chosen(active))
        answers = self._answers(nodes)
        tried = self._tried(nodes, answers)
        returns = self._train(nodes, tried)
        self._report.counts["rounds"] += 1
        for (search, node, _), members in zip(nodes, tried, strict=True):
            ranked = sorted(members, key=lambda member: -returns.get(id(member.step), 0.0))
            self._go_on(search, node, ranked)

    def _chosen(self, active: Sequence[Search]) -> list[tuple[Search, Node, int]]:
        """The state each search answers in, and how often; those that turn back are through with theirs."""
        nodes = [(search, search.stack.pop()) for search in active]
        states = [node.observation.anchor for _, node in nodes]
        # By what is known of the state so far: 0 answers where trying has not helped, more where it may.
        wanted = self._s.tree_search.samples(self._s.sso, self._statistics, states)
        chosen = []
        for (search, node), n in zip(nodes, wanted.tolist(), strict=True):
            if n == 0 and node.path:
                # Turned back: the path counts as a failure, and the next state on the stack has its turn.
                self._report.counts["turned_back"] += 1
                self._found(search, node.path)
                self._places.release(node.key)
            else:
                chosen.append((search, node, max(n, 1)))  # a task is never given up for its first state
        return chosen

    def _go(self, chosen: Sequence[tuple[Search, Node, int]]) -> list[tuple[Search, Node, int]]:
        """Has the pool stand in the states that searches have come back to."""
        gone = {}
        for search, node, _ in chosen:
            if node.key is None:
                node.key = self._places.go(search, node)
                gone[node.key] = search
        there = self._places.replies(gone)
        return [one for one in chosen if one[1].key not in gone or one[1].key in there]

    def _answers(self, nodes: Sequence[tuple[Search, Node, int]]) -> list[tuple[list[int], list[Generation]]]:
        """Prompt and answers of each state."""
        prompts, requests, asked = self._s.settings.prompts, [], []
        for search, node, n in nodes:
            path = Trajectory(search.task.id, search.task.family, search.instruction, 0, 0, 0, node.path)
            ids, _ = Resumed(prompts, path, len(node.path)).prompt(node.observation)
            asked.append(ids)
            for _ in range(n):
                seed = derive(self._s.seed, "search", search.group, search.answers)
                search.answers += 1
                requests.append(Request(len(requests), ids, True, seed, prompts.max_response_tokens))
        made = iter(self._s.policy.generate(requests, Sampling(self._s.settings.temperature)))
        self._watchdog.pat()
        for request in requests:
            self._s.policy.release(request.key)
        return [(ids, [next(made) for _ in range(n)]) for ids, (_, _, n) in zip(asked, nodes, strict=True)]

    def _tried(
        self,
        nodes: Sequence[tuple[Search, Node, int]],
        answers: Sequence[tuple[list[int], list[Generation]]],
    ) -> list[list[Tried]]:
        """Plays every answer in a copy of its state."""
        prompts, version = self._s.settings.prompts, self._s.policy.version
        copies: dict[int, tuple[Search, Step, list[Tried]]] = {}
        tried: list[list[Tried]] = []
        for (search, node, _), (ids, generations) in zip(nodes, answers, strict=True):
            tried.append([])
            for generation in generations:
                self._sampled += len(generation.ids)
                step = make_step(len(node.path), node.observation, ids, True, generation, prompts, version)
                copies[self._places.copy(node)] = search, step, tried[-1]
        searches = {key: search for key, (search, _, _) in copies.items()}
        searches = {key: searches[key] for key in self._places.replies(searches)}
        for key in searches:
            self._places.step(key, copies[key][1].action)
        for key, reply in self._places.replies(searches).items():
            _, step, members = copies[key]
            outcome = reply.outcome
            step.reward, step.next_observation = outcome.reward, outcome.observation
            members.append(Tried(key, step, outcome))
        for _, node, _ in nodes:
            self._places.release(node.key)
        return tried

    def _train(
        self, nodes: Sequence[tuple[Search, Node, int]], tried: Sequence[Sequence[Tried]]
    ) -> dict[int, float]:
        """The post-step update on all states with two answers or more; returns each step's return, by id."""
        groups: list[Group] = []
        for number, ((search, _, _), members) in enumerate(zip(nodes, tried, strict=True)):
            self._report.counts["answers"] += len(members)
            if len(members) > 1:
                self._report.counts["branched"] += 1
                groups.append([member.alone(search, number, i) for i, member in enumerate(members)])
        if not groups:
            return {}
        settings = self._s.settings
        prepared = self._s.learner.prepare(token_rows(groups, mask_truncated=settings.mask_truncated))
        table = settings.table(groups, prepared.rows)
        credit = self._s.pipeline.run(
            table,
            seed=self._s.seed,
            step=self._update,
            state={**self._state, "sso": self._statistics},
        )
        trained = self._s.learner.update(prepared, credit.advantage, update=self._update)
        synced = sync(self._s.learner, self._s.policy, self._s.contract)
        self._watchdog.pat()
        steps = [member.step for members in tried if len(members) > 1 for member in members]
        return self._report.trained(steps, credit, {**credit.metrics, **trained, **synced})

    def _go_on(self, search: Search, node: Node, ranked: Sequence[Tried]) -> None:
        """Takes the answers of a state, the best first; the search goes on from the best that can."""
        following = []
        for member in ranked:
            path = [*node.path, member.step]
            if member.outcome.done:
                self._found(search, path, member.outcome)
                self._places.release(member.key)
            elif following:
                # Only the best answer's copy is kept: few of the others are ever come back to.
                following.append(Node(path, member.step.next_observation, None))
                self._places.release(member.key)
            else:
                following.append(Node(path, member.step.next_observation, member.key))
        won = any(tr.success for tr in search.found)
        # Depth first: the best answer goes on top of the stack and is the next state.
        search.stack += reversed(following)
        # A success, or as many trajectories as a group has, ends the task's search.
        if won or len(search.found) >= self._s.settings.group_size:
            for left in search.stack:
                self._places.release(left.key)
            search.stack.clear()
        elif not ranked and not node.path:
            self._places.lost.setdefault(search.task.id, "every answer's environment failed")

    def _found(self, search: Search, path: list[Step], outcome: Outcome | None = None) -> None:
        """Records a trajectory from the start, and counts its states."""
        if len(search.found) >= self._s.settings.group_size:
            return
        success = outcome is not None and outcome.success
        task, index = search.task, len(search.found)
        seed = derive(self._s.seed, "search", search.group)
        record = Trajectory(
            task.id, task.family, search.instruction, search.group, index, seed, path, success
        )
        if outcome is not None:
            record.score, record.truncated = outcome.score, outcome.truncated
        search.found.append(record)
        states = {step.observation.anchor for step in path}
        if not success:
            states.add(path[-1].next_observation.anchor)
        self._statistics = update_statistics(self._statistics, [(states, success)])
