"""One trajectory in flight: its prompts, the responses to them, and the steps recorded."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.prompts.builder import Conversation, PromptBuilder
from agent.rollout.groups import Seat
from agent.steering.base import ActOn, AskAgain, Pilot, TriedResponse
from agent.types import Generation, Request, Step, Trajectory, UnplayedResponse
from configs.seeds import derive
from envs.base import Observation, Outcome


@dataclass(slots=True)
class Live:
    """What is known of it between two of its turns.

    Attributes:
        key: Under which the policy and the pool know it.
        seat: Its place among the groups.
        trajectory: The record.
        pilot: Steers it; None: every response acts.
        began: Seconds of the monotonic clock.
    """

    key: int
    seat: Seat
    trajectory: Trajectory
    pilot: Pilot | None
    began: float
    tries: list[TriedResponse] = field(default_factory=list)
    _conversation: Conversation | None = None
    _observation: Observation | None = None
    _prompt_ids: list[int] = field(default_factory=list)
    _fresh: bool = True
    _row: int = 0  # tokens of the row, the current prompt included
    _opening: tuple[int, ...] = ()
    _restore: tuple[int, list[int]] | None = (
        None  # where the policy's row and the record parted, and the record
    )

    def opened(self, observation: Observation, instruction: str, conversation: Conversation) -> None:
        """Takes the first observation."""
        self.trajectory.instruction, self._conversation = instruction, conversation
        self._see(observation)

    def request(self, prompts: PromptBuilder) -> Request:
        """What to ask of the policy now."""
        number = len(self.tries)
        place = (len(self.trajectory.steps), *(("again", number) if number else ()))
        seed, limit = derive(self.trajectory.seed, *place), prompts.max_response_tokens
        if number:  # the prompt is there already, and the last response after it
            return Request(self.key, self._opening, False, seed, limit - len(self._opening), keep=self._row)
        if self._restore is not None and not self._fresh:
            kept, response = self._restore
            return Request(self.key, response + self._prompt_ids, False, seed, limit, keep=kept)
        return Request(self.key, self._prompt_ids, self._fresh, seed, limit)

    def answer(self, generation: Generation, prompts: PromptBuilder, version: int) -> str | None:
        """Takes a response; returns the action to play, None if the prompt is to be answered again."""
        self.tries.append(TriedResponse(self._opening, generation))
        act = ActOn(generation)
        if self.pilot is not None:
            decision = self.pilot.decide(self.trajectory, self.tries)
            if isinstance(decision, AskAgain):
                self._opening = decision.opening
                return None
            act = decision
        return self._record(act, prompts, version)

    def _record(self, act: ActOn, prompts: PromptBuilder, version: int) -> str:
        """Writes the step down, but for what the environment will say."""
        generation = act.generation
        step = make_step(
            len(self.trajectory.steps),
            self._observation,
            self._prompt_ids,
            self._fresh,
            generation,
            prompts,
            version,
        )
        step.forced = act.forced
        step.unplayed = tuple(self._unplayed(self.tries[number]) for number in act.unplayed)
        self.trajectory.steps.append(step)
        last = self.tries[-1]
        same = [*last.opening, *last.generation.ids] == generation.ids
        self._restore = None if same else (self._row, generation.ids)
        self._row += len(generation.ids)
        self.tries, self._opening = [], ()
        return step.action

    def stepped(self, outcome: Outcome) -> bool:
        """Completes the step with the environment's answer; returns whether there is another one."""
        trajectory = self.trajectory
        step = trajectory.steps[-1]
        step.reward, step.next_observation = outcome.reward, outcome.observation
        if outcome.done:
            trajectory.success, trajectory.score = outcome.success, outcome.score
            trajectory.truncated = outcome.truncated
            return False
        self._conversation.record(step.response_ids, step.action)
        self._see(outcome.observation)
        return True

    def _see(self, observation: Observation) -> None:
        self._observation = observation
        self._prompt_ids, self._fresh = self._conversation.prompt(observation)
        self._row = len(self._prompt_ids) + (0 if self._fresh else self._row)

    @staticmethod
    def _unplayed(one: TriedResponse) -> UnplayedResponse:
        return UnplayedResponse(one.opening, one.generation.ids, one.generation.logps, one.generation.finish)


def make_step(
    t: int,
    observation: Observation,
    prompt_ids: list[int],
    fresh: bool,
    generation: Generation,
    prompts: PromptBuilder,
    version: int,
) -> Step:
    """The record of a response, but for what the environment will say."""
    response = prompts.turns.decode(generation.ids)
    parsed = prompts.parser(prompts.turns.opened + response)
    return Step(
        t=t,
        observation=observation,
        prompt_ids=prompt_ids,
        fresh=fresh,
        response_ids=generation.ids,
        logp_sampled=generation.logps,
        finish=generation.finish,
        policy_version=version,
        response=response,
        thought=parsed.thought,
        action=parsed.action,
        well_formed=parsed.well_formed,
        admissible=observation.admits(parsed.action),
        reward=0.0,
        next_observation=observation,
        listed=parsed.listed,
    )
