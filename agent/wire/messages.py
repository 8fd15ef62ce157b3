"""What travels between a run and a policy server: JSON, checked at both ends by these models.

Every message can be sent again: requests and answers are numbered, transfers of weights have a label, and
what was done already is not done twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from transformers import PreTrainedModel

from agent.types import Finish
from serving.messages import Name, Text, Wire

PROTOCOL = 1
TOKEN_VARIABLE = "SIBLING_POLICY_TOKEN"
"""Environment variable of the token, on both sides."""

BATCH = 1024
"""Most requests in a message."""

LONGEST_WAIT = 30.0
"""Most seconds that a server holds an answer back."""

Count = Annotated[int, Field(ge=0, lt=2**63)]
Label = Annotated[Text, Field(pattern=r"^[0-9A-Za-z-]{1,100}$", description="Of one transfer of weights.")]
Way = Literal["body", "file", "group"]


class ModelDescription(Wire):
    """What a server and a run have to agree on before one samples for the other.

    Attributes:
        weights: Name → shape, tied weights once.
        tied: Their other names → the one above.
        vocabulary: Token ids are below it.
        stop_ids: Tokens that end a response.
        window: Longest row, prompt and response (tokens).
    """

    weights: dict[str, list[Count]]
    tied: dict[str, str] = {}
    vocabulary: int = Field(ge=1)
    stop_ids: list[Count]
    window: int = Field(ge=1)

    def differences(self, other: ModelDescription) -> list[str]:
        """Says in what `other`, a server's model, is another one; empty if they agree."""
        found = [
            f"{part} is {getattr(other, part)!r} there, {getattr(self, part)!r} here"
            for part in ("vocabulary", "stop_ids", "window", "tied")
            if getattr(self, part) != getattr(other, part)
        ]
        names = sorted(self.weights.keys() | other.weights.keys())
        wrong = [name for name in names if self.weights.get(name) != other.weights.get(name)]
        for name in wrong[:3]:
            there, here = (model.weights.get(name, "missing") for model in (other, self))
            found.append(f"weight {name} is {there} there, {here} here")
        return found + ([f"and {len(wrong) - 3} more weights"] if len(wrong) > 3 else [])


def describe(model: PreTrainedModel, stop_ids: Sequence[int], window: int) -> ModelDescription:
    """Describes a model without adapters and how it is used."""
    tensors = model.state_dict(keep_vars=True)
    names: dict[int, str] = {}
    first = {name: names.setdefault(id(tensor), name) for name, tensor in tensors.items()}
    return ModelDescription(
        weights={name: list(tensors[name].shape) for name in names.values()},
        tied={name: other for name, other in first.items() if other != name},
        vocabulary=model.config.vocab_size,
        stop_ids=sorted(set(stop_ids)),
        window=window,
    )


class Hello(Wire):
    """A server's answer to the question what it is.

    Attributes:
        protocol: Of the wire.
        model: What it samples from.
        device: Where its weights are, `cpu` or `cuda`.
        body: Most bytes of a request.
    """

    protocol: int
    model: ModelDescription
    device: str
    body: int


class Ask(Wire):
    """A request, as `agent.types.Request`; `number` grows from one of a client's requests to its next."""

    number: Count
    conversation: Count
    ids: list[Count] = Field(max_length=2**20)
    fresh: bool
    seed: int = Field(ge=0, lt=2**64)
    max_new_tokens: int = Field(ge=1, le=2**20)
    keep: Count | None = None


class Start(Wire):
    """Requests, all to be sampled alike from the weights of one transfer; releases are done before."""

    client: Name
    label: Label
    temperature: float = Field(ge=0.0, allow_inf_nan=False)
    top: int = Field(0, ge=0, le=1024)
    release: list[Count] = Field([], max_length=64 * BATCH)
    ask: list[Ask] = Field(max_length=BATCH)


class Started(Wire):
    """The requests are taken.

    Attributes:
        record: Of what the server knows of this client; another one means that it has forgotten the rest.
    """

    record: str


class Collect(Wire):
    """Asks for responses that have ended.

    Attributes:
        record: As `Started` said.
        ack: Delivery number up to which all answers have arrived.
        enough: The answer waits for so many, or for the last one in flight.
        wait: Longest it does (s).
    """

    client: Name
    record: Text
    ack: Count = 0
    enough: int = Field(1, ge=1)
    wait: float = Field(10.0, ge=0.0, le=LONGEST_WAIT)


class Fault(Wire):
    """Why a request has no response: `unknown`, of a conversation the server does not have; or `refused`."""

    reason: Literal["unknown", "refused"]
    message: str


class Response(Wire):
    """What became of one request: a `Generation` with the version of its weights, or a fault."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    delivery: Count
    number: Count
    version: int = 0
    ids: list[int] = []
    logps: list[float] = []
    finish: Finish = "stop"
    signals: list[list[float]] | None = None
    fault: Fault | None = None


class Collected(Wire):
    """Responses, in the order they ended."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    responses: list[Response]


class Release(Wire):
    """Conversations to forget; unknown ones are no error."""

    client: Name
    conversations: list[Count] = Field(max_length=64 * BATCH)


class Done(Wire):
    """It is done."""


class Meeting(Wire):
    """Where the processes of a transfer by `group` meet; the sender has rank 0."""

    backend: Literal["gloo", "nccl"]
    host: Text
    port: int = Field(ge=1, le=65535)
    size: int = Field(ge=2)
    rank: int = Field(ge=1)


class Begin(Wire):
    """Begins a transfer. One under way with another label is given up for it."""

    label: Label
    version: Count
    way: Way
    timeout_s: float = Field(gt=0.0, le=86400.0, description="Longest the whole transfer may take.")
    checksum: bool = Field(False, description="Checksums of all tensors are compared at the end.")
    meeting: Meeting | None = None


class Pushed(Wire):
    """The next bucket lies in the folder that server and sender share, under `bucket_file`'s name."""

    label: Label
    number: Count


def bucket_file(label: str, number: int | str) -> str:
    """Name of a bucket's file; no request says any other, so a server reads nothing else."""
    return f"sibling-weights-{label}-{number}.safetensors"


class Ending(Wire):
    """Ends a transfer.

    Attributes:
        tensors: How many were sent.
        digests: Name → checksum of each (`agent.wire.transfer.Checksums`), if `Begin.checksum`.
    """

    label: Label
    tensors: Count
    digests: dict[str, str] = {}


class Abort(Wire):
    """Gives a transfer up."""

    label: Label
    why: Text = Field(max_length=2000)


class WeightsState(Wire):
    """Which weights a server has.

    Attributes:
        label: Of their transfer; None: it has none to sample from.
        version: Theirs.
        loading: Label of a transfer under way.
        failed: Label of the last one that failed.
        fault: Why it did.
    """

    label: str | None = None
    version: int | None = None
    loading: str | None = None
    failed: str | None = None
    fault: str = ""
