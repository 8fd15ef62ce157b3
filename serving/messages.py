"""The base of all messages between the project's servers and their clients."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _encodable(text: str) -> str:
    """Lets no half of a surrogate pair in: JSON can spell one, but it cannot be sent back."""
    text.encode()  # a UnicodeEncodeError is a ValueError, which the model reports
    return text


Text = Annotated[str, AfterValidator(_encodable)]
Name = Annotated[Text, Field(min_length=1, max_length=200, description="The client's choice.")]


class Wire(BaseModel):
    """Base of messages: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
