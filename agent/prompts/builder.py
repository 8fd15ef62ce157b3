"""Observations to prompt tokens, in two forms.

`append`: the trajectory is one growing token row; a step adds its observation only, so a policy keeps
its KV cache and training pays for a shared prefix once. `stepwise`: every step is a prompt of its own that
repeats the task and the last steps as text, as the GiGPO family of papers does.

Nothing sampled is tokenised again in either form: a row that outgrew the window restarts from the
recorded ids of its last responses, and a step-wise prompt quotes parsed actions, not responses.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from agent.prompts.parse import Parser, parse
from agent.prompts.turns import TurnFormat
from configs.errors import UserError
from envs.base import Observation

Form = Literal["append", "stepwise"]
FOLDER = Path(__file__).resolve().parents[2] / "configs" / "prompts"


class PromptError(UserError, ValueError):
    """A template is wrong, or a prompt cannot be made to fit the window."""


class AppendTexts(BaseModel):
    """User messages of the append form; fields `{observation}`, `{admissible}`, `{instruction}`.

    Attributes:
        first: The first step (its observation states the task in ALFWorld).
        later: Every later step.
        restart: Oldest step kept when a row restarts; must contain `{instruction}`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    first: str
    later: str
    restart: str


class StepwiseTexts(BaseModel):
    """User messages of the step-wise form.

    Attributes:
        first: The first step: fields as in `AppendTexts`.
        later: Every later step: also `{steps_taken}`, `{shown}` (history steps shown), `{history}`,
            `{step}` (number of the current step, from 1). With `history: 0`, `{history}` is "".
        pair: One history step: `{step}`, `{observation}`, `{action}`; joined by newlines.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    first: str
    later: str
    pair: str


class PromptTemplate(BaseModel):
    """A file of `configs/prompts/`: the wording of one environment's prompts.

    Attributes:
        system: System message; null leaves it to the chat template.
        append: Texts of the append form; null if the template has none.
        stepwise: Texts of the step-wise form; null if the template has none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    system: str | None
    append: AppendTexts | None = None
    stepwise: StepwiseTexts | None = None

    @model_validator(mode="after")
    def _fields_known(self) -> PromptTemplate:
        message = {"observation": "", "admissible": "", "instruction": ""}
        fields = {
            (StepwiseTexts, "later"): message | {"steps_taken": 0, "shown": 0, "history": "", "step": 0},
            (StepwiseTexts, "pair"): {"step": 0, "observation": "", "action": ""},
        }
        for texts in filter(None, (self.append, self.stepwise)):
            for key, text in texts:
                known = fields.get((type(texts), key), message)
                try:
                    text.format(**known)
                except (KeyError, IndexError, ValueError) as error:
                    raise ValueError(
                        f"{key}: cannot fill in {text!r} ({error!r}); fields here: {', '.join(known)}; "
                        "write a literal brace twice"
                    ) from error
        for text in (self.append and self.append.restart, self.stepwise and self.stepwise.later):
            if text is not None and "{instruction}" not in text:
                raise ValueError(f"{text!r} must repeat the task: add {{instruction}}")
        return self


def load_template(name: str) -> PromptTemplate:
    """Reads `configs/prompts/<name>.yaml`, or the file that `name` is the path of (if it ends in .yaml).

    Raises:
        PromptError: No such file, or its keys or fields are wrong.
    """
    path = Path(name) if name.endswith(".yaml") else FOLDER / f"{name}.yaml"
    if not path.exists():
        names = ", ".join(sorted(p.stem for p in FOLDER.glob("*.yaml")))
        raise PromptError(
            f"prompt.template={name!r}: no {path}; there are {names}, or give a path to a .yaml"
        )
    try:
        return PromptTemplate.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (ValidationError, yaml.YAMLError) as error:
        raise PromptError(f"{path}: {error}") from error


class Conversation(Protocol):
    """The prompts of one trajectory: `prompt`, then `record`, in turns."""

    def prompt(self, observation: Observation) -> tuple[list[int], bool]:
        """Returns the new prompt ids of this step and whether they open a fresh row."""

    def record(self, response_ids: list[int], action: str) -> None:
        """Takes what was sampled for the last prompt and the action parsed from it."""


@dataclass(frozen=True, slots=True)
class PromptBuilder:
    """Everything the prompts of a run depend on; `start` begins one trajectory.

    Args:
        turns: The model's chat format.
        form: `append` or `stepwise`.
        template: The wording.
        history: Steps repeated in a step-wise prompt.
        window: Longest token row, prompt and response (tokens).
        max_response_tokens: Room every prompt leaves for its response (tokens).
        parser: Reads the responses to them.

    Raises:
        PromptError: The template lacks the form.
    """

    turns: TurnFormat
    form: Form
    template: PromptTemplate
    history: int
    window: int
    max_response_tokens: int
    parser: Parser = parse

    def __post_init__(self) -> None:
        if getattr(self.template, self.form) is None:
            raise PromptError(
                f"prompt.form={self.form}, but the prompt template has no `{self.form}` texts: choose "
                "another prompt.template or prompt.form"
            )

    @property
    def room(self) -> int:
        """Longest prompt (tokens)."""
        return self.window - self.max_response_tokens

    def start(self, instruction: str) -> Conversation:
        """Begins a trajectory whose task is `instruction`."""
        return _Append(self, instruction) if self.form == "append" else _Stepwise(self, instruction)

    def check_fits(self, ids: list[int], what: str) -> list[int]:
        """Returns `ids`, or raises `PromptError` if they leave no room for a response."""
        if len(ids) > self.room:
            raise PromptError(
                f"{what} take {len(ids)} tokens, but prompt.window ({self.window}) − "
                f"prompt.max_response_tokens ({self.max_response_tokens}) leaves {self.room}: "
                "raise prompt.window"
            )
        return ids


class _Append:
    """One growing row; restarts from its last whole steps when it would outgrow the window."""

    def __init__(self, builder: PromptBuilder, instruction: str) -> None:
        self._builder, self._instruction = builder, instruction
        self._texts = builder.template.append
        self._steps: list[tuple[Observation, list[int]]] = []  # since the last restart's oldest step
        self._current: Observation | None = None
        self._length = 0  # tokens of the current row

    def prompt(self, observation: Observation) -> tuple[list[int], bool]:
        """See `Conversation.prompt`."""
        self._current = observation
        builder = self._builder
        if not self._steps:
            ids = builder.turns.first(builder.template.system, self._fill(self._texts.first, observation))
            self._length = len(builder.check_fits(ids, "the task and its first observation"))
            return ids, True
        ids = self._continue(observation, self._steps[-1][1])
        if self._length + len(ids) > builder.room:
            ids = self._restart(observation)
            self._length = len(ids)
            return ids, True
        self._length += len(ids)
        return ids, False

    def record(self, response_ids: list[int], action: str) -> None:
        """See `Conversation.record`."""
        self._steps.append((self._current, response_ids))
        self._length += len(response_ids)

    def _restart(self, observation: Observation) -> list[int]:
        """Returns a whole row: task line, as many last steps as fit half the window, `observation`."""
        ids = self._row([], observation)
        self._builder.check_fits(ids, "the task and the current observation")
        kept = 0
        for count in range(1, len(self._steps) + 1):
            longer = self._row(self._steps[-count:], observation)
            if len(longer) > min(self._builder.window // 2, self._builder.room):
                break
            ids, kept = longer, count
        self._steps = self._steps[len(self._steps) - kept :]
        return ids

    def _row(self, steps: list[tuple[Observation, list[int]]], observation: Observation) -> list[int]:
        turns = self._builder.turns
        oldest = steps[0][0] if steps else observation
        ids = turns.first(self._builder.template.system, self._fill(self._texts.restart, oldest))
        following = [seen for seen, _ in steps[1:]] + [observation]
        for (_, response), seen in zip(steps, following, strict=False):
            ids = ids + response + self._continue(seen, response)
        return ids

    def _continue(self, observation: Observation, response: list[int]) -> list[int]:
        turns = self._builder.turns
        closed = bool(response) and response[-1] in turns.stop_ids
        return turns.next(self._fill(self._texts.later, observation), closed=closed)

    def _fill(self, text: str, observation: Observation) -> str:
        return text.format(
            observation=observation.text,
            admissible=quote_admissible(observation.admissible),
            instruction=self._instruction,
        )


class _Stepwise:
    """A prompt of its own for every step."""

    def __init__(self, builder: PromptBuilder, instruction: str) -> None:
        self._builder, self._instruction = builder, instruction
        self._texts = builder.template.stepwise
        self._pairs: list[tuple[Observation, str]] = []
        self._current: Observation | None = None

    def prompt(self, observation: Observation) -> tuple[list[int], bool]:
        """See `Conversation.prompt`; history steps that do not fit are left out, oldest first."""
        self._current = observation
        builder = self._builder
        if not self._pairs:
            ids = self._encode(observation, 0)
            return builder.check_fits(ids, "the task and its first observation"), True
        for shown in range(min(builder.history, len(self._pairs)), 0, -1):
            ids = self._encode(observation, shown)
            if len(ids) <= builder.room:
                return ids, True
        return builder.check_fits(self._encode(observation, 0), "the task and the current observation"), True

    def record(self, response_ids: list[int], action: str) -> None:
        """See `Conversation.record`."""
        self._pairs.append((self._current, action))

    def _encode(self, observation: Observation, shown: int) -> list[int]:
        taken = len(self._pairs)
        history = "\n".join(
            self._texts.pair.format(step=number, observation=seen.text, action=action)
            for number, (seen, action) in list(enumerate(self._pairs, start=1))[taken - shown :]
        )
        text = self._texts.later if taken else self._texts.first
        user = text.format(
            observation=observation.text,
            admissible=quote_admissible(observation.admissible),
            instruction=self._instruction,
            steps_taken=taken,
            shown=shown,
            history=history,
            step=taken + 1,
        )
        return self._builder.turns.first(self._builder.template.system, user)


def quote_admissible(commands: tuple[str, ...]) -> str:
    """Returns the admissible commands quoted, one per line, without `help` (it never helps the task)."""
    return "\n".join(f"'{command}'" for command in commands if command != "help")
