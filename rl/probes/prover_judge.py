"""ProVer's judge: a chat model reads a success beside its failed siblings and names the stretch to verify.

It is asked over the OpenAI-compatible protocol (`POST …/chat/completions`), which vLLM's server speaks too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import httpx

from configs.errors import UserError
from credit.table import StepTable

_ASK = """\
Below are attempts at one task. Attempt 1 succeeded, the others failed. Name the stretch of attempt 1, \
at most {max_steps} steps and without its last step, that most likely made the difference. Answer with two \
numbers, its first and its last step, for example: steps 3-4.

{attempts}"""
_ANSWER = re.compile(r"(\d+)\s*(?:-|–|to|,)\s*(\d+)")


class JudgeError(UserError, RuntimeError):
    """The judge could not be asked; the message says which and why."""


class ChatJudge:
    """Proposes a stretch of a success; a `credit.parts.continuations.Judge`.

    ProVer (arXiv 2609.36178) uses a large model with tools that search the trajectories, and its prompt is
    not public. Departures: one question with the steps in it, no tools; at most `failures_shown` failures,
    the first ones in the table's order, each observation cut to `max_chars`.

    Args:
        url: Base address, such as http://127.0.0.1:8000/v1.
        model: Name of the model there.
        key: Bearer token; None sends none.
        max_steps: Longest stretch to ask for.
        failures_shown: Failed siblings in the question.
        max_chars: Longest observation shown.
        timeout: Of one question, seconds.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        max_steps: int = 4,
        failures_shown: int = 2,
        max_chars: int = 300,
        timeout: float = 60.0,
    ) -> None:
        self._url, self._model = f"{url.rstrip('/')}/chat/completions", model
        self._max_steps, self._failures_shown, self._max_chars = max_steps, failures_shown, max_chars
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(
            headers=headers, timeout=timeout, transport=httpx.HTTPTransport(retries=2)
        )

    def __call__(self, table: StepTable, success: range, failures: Sequence[range]) -> tuple[int, int] | None:
        """Asks about one group.

        Args:
            table: Canonical.
            success: Rows of the success.
            failures: Rows of each failed sibling.

        Returns:
            (first step, step after the last one), or None if the answer names no stretch.

        Raises:
            JudgeError: no answer, or none of the protocol's form.
        """
        attempts = [success, *failures[: self._failures_shown]]
        shown = "\n\n".join(self._attempt(table, k, rows) for k, rows in enumerate(attempts, 1))
        question = _ASK.format(max_steps=self._max_steps, attempts=shown)
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": question}],
            "temperature": 0,
        }
        try:
            response = self._client.post(self._url, json=body)
            response.raise_for_status()
            answer = str(response.json()["choices"][0]["message"]["content"])
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise JudgeError(
                f"the judge at {self._url} (model {self._model!r}) gave no answer: {error!r}. "
                "Check probes.judge_url and probes.judge_model, or choose another credit.prover.proposer"
            ) from error
        numbers = _ANSWER.search(answer)
        return (int(numbers[1]), int(numbers[2]) + 1) if numbers else None

    def _attempt(self, table: StepTable, number: int, rows: range) -> str:
        steps = (
            f"step {table.t[row]}: {table.observation[row][-self._max_chars :]} → {table.action[row]}"
            for row in rows
        )
        return "\n".join([f"Attempt {number}", *steps])
