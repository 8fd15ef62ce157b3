"""The options of `env`, and what all sections have in common; see `configs.schema`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from configs.worlds import WORLDS


class Section(BaseModel):
    """Base of all sections: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def split_urls(urls: Any) -> Any:
    """Splits at commas what came as one string."""
    return [url for url in urls.split(",") if url] if isinstance(urls, str) else urls


class EnvConfig(Section):
    """The environment and the tasks of the run."""

    name: str = Field(
        "alfworld",
        description=f"{', '.join(f'`{name}`' for name in WORLDS)}, or a world of your own: "
        "`FILE.py:Class` or `module:Class` (docs/environments.md).",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options of the world, by name; dropped where a later layer names another world.",
    )
    data: str = Field(
        "generated",
        description="`generated` (seeded, no download); ALFWorld: a folder of game.tw-pddl games, or a "
        ".jsonl.xz; WebShop: a folder that `run.py data webshop` wrote.",
    )
    split: str = Field("train", description="Split trained on.")
    difficulty: float = Field(
        1.0,
        ge=0.0,
        le=1.0,
        description="Generated data only. Games: 0 = few receptacles … 1 = full size rooms. Shop: 0 = few "
        "options of one value … 1 = as many as in the published set.",
    )
    train_tasks: int | None = Field(
        None,
        ge=1,
        description="Tasks of the train split, chosen as `env.subset_seed` says (null: all; generated games: "
        "3553, as many as the official).",
    )
    subset_seed: int = Field(
        0,
        ge=0,
        description="Which tasks `env.train_tasks` and `eval.tasks` choose: so many of a split, in the "
        "proportions of its families, by a hash of the tasks' ids with this seed (docs/experiments.md). Not "
        "the run's seed, so that all runs of a sweep play the same tasks. Of generated games the first n are "
        "played: each is drawn in the official proportions.",
    )
    data_seed: int = Field(
        0, ge=0, description="Seed of generated games, or of a shop, its prices and price limits."
    )
    skip_corrupt: bool = Field(False, description="Leave out game files that cannot be read, and say so.")
    max_steps: int = Field(50, ge=1, description="Step limit of a trajectory.")
    anchor: Literal["state", "text"] = Field(
        "state", description="Key for peers: the environment's own state key, or the raw text (papers)."
    )
    workers: int = Field(0, ge=0, description="Processes that play the environments (0: the run's own).")
    urls: tuple[str, ...] = Field(
        (), description="Environment servers that play instead, separated by commas (docs/envs.md)."
    )
    token_file: str | None = Field(
        None, description="File of the servers' token (null: the variable SIBLING_ENV_TOKEN)."
    )
    timeout_s: float = Field(10.0, gt=0.0, description="Longest wait for one answer of a server.")
    patience_s: float = Field(
        120.0, gt=0.0, description="Time after which what no server has answered is a failure."
    )

    @property
    def label(self) -> str:
        """The name without where it is: the class of a world of one's own."""
        return self.name.rpartition(":")[2]

    @field_validator("name")
    @classmethod
    def _is_a_world(cls, name: str) -> str:
        place, _, own = name.rpartition(":")
        if name not in WORLDS and not (place and own.isidentifier()):
            known = ", ".join(WORLDS)
            raise ValueError(f"must be {known}, or FILE.py:Class or module:Class for a world of your own")
        return name

    @field_validator("urls", mode="before")
    @classmethod
    def _split(cls, urls: Any) -> Any:
        return split_urls(urls)
