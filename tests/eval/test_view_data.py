"""What the viewer's pages are made from: catalogue, index, methods, steps, tokens."""

import json
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from starlette.datastructures import QueryParams

from commands.replay import methods_of
from credit.pipeline import Pipeline
from eval.view.catalogue import Catalogue, UnknownRun
from eval.view.index import TrajectoryIndex
from eval.view.methods import Scorer, disputes
from eval.view.query import PAGE, SORTS, Query
from eval.view.steps import trajectory_view
from eval.view.tokens import prompt_ids
from rl.rows.assemble import step_table
from tests.eval.synthetic import RunWriter, result, toy_groups
from tests.eval.viewing import rows


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    writer = RunWriter(tmp_path_factory.mktemp("runs") / "a", overrides=["train.updates=9"])
    for update in (1, 2, 3):
        writer.update(update, toy_groups(update))
    return writer


@pytest.fixture(scope="module")
def index(run):
    made = TrajectoryIndex(run.path / "trajectories")
    made.refresh()
    return made


@pytest.fixture(scope="module")
def recorded(run):
    """(update, trajectory) → its rows in time order, read without the index."""
    found = {}
    for path in sorted((run.path / "trajectories").glob("*.parquet")):
        for row in rows(path):
            found.setdefault((row["update"], row["trajectory"]), []).append(row)
    return {key: sorted(steps, key=lambda row: row["t"]) for key, steps in found.items()}


def everything(index, query):
    """All entries of a query, page by page."""
    entries, total = index.page(query)
    for page in range(2, -(-total // PAGE) + 1):
        entries += index.page(Query(**{**query.__dict__, "page": page}))[0]
    assert len(entries) == total
    return entries


@pytest.mark.parametrize(
    ("update", "family", "outcome", "text"),
    product((None, 2), ("", "near"), ("", "success", "failure"), ("", "TAKE key", "open door")),
)
def test_filters(index, recorded, update, family, outcome, text):
    searched = ("instruction", "task_id", "action")
    wanted = {
        key
        for key, steps in recorded.items()
        if (update is None or key[0] == update)
        and (not family or steps[0]["family"] == family)
        and (not outcome or steps[0]["success"] == (outcome == "success"))
        and (not text or any(text.lower() in row[name].lower() for row in steps for name in searched))
    }
    entries = everything(index, Query(update=update, family=family, outcome=outcome, text=text))
    assert {(entry["update"], entry["trajectory"]) for entry in entries} == wanted


def test_entries_say_what_was_recorded(index, recorded):
    for entry in everything(index, Query()):
        steps = recorded[entry["update"], entry["trajectory"]]
        assert entry["steps"] == len(steps)
        assert entry["advantage"] == [row["advantage"] for row in steps]
        assert entry["largest"] == max(abs(row["advantage"]) for row in steps)
        assert entry["credited"] == sum(row["scpo.sibling_t"] >= 0 for row in steps)
        assert entry["invalid"] == sum(not row["valid"] for row in steps)


@pytest.mark.parametrize(
    ("sort", "key"),
    [
        ("newest", lambda e: -e["update"]),
        ("oldest", lambda e: e["update"]),
        ("longest", lambda e: -e["steps"]),
        ("largest", lambda e: -e["largest"]),
        ("credited", lambda e: -e["credited"]),
    ],
)
def test_order(index, sort, key):
    entries = everything(index, Query(sort=sort))
    assert [key(entry) for entry in entries] == sorted(key(entry) for entry in entries)


def test_ten_thousand_trajectories_come_in_pages(tmp_path):
    """The pages together are everything once, and the last of every order is whole."""
    for update in range(1, 11):
        n = 3000
        trajectory = np.repeat(np.arange(1000), 3)
        columns = {
            "update": np.full(n, update),
            "trajectory": trajectory,
            "group": trajectory // 8,
            "index": trajectory % 8,
            "t": np.tile(np.arange(3), 1000),
            "success": trajectory % 3 == 0,
            "truncated": trajectory % 3 != 0,
            "valid": np.ones(n, dtype=bool),
            "advantage": np.sin(np.arange(n) * update),
            **{name: [name] * n for name in ("task_id", "family", "instruction", "action")},
        }
        pq.write_table(pa.table(columns), tmp_path / f"{update:04d}.parquet")
    index = TrajectoryIndex(tmp_path)
    index.refresh()
    entries = everything(index, Query())
    assert len({(entry["update"], entry["trajectory"]) for entry in entries}) == 10_000
    for sort in SORTS:
        assert len(index.page(Query(sort=sort, page=200))[0]) == PAGE
    assert index.page(Query(outcome="success", page=7))[1] == 10 * 334
    assert index.facets()["families"] == {"family": 10_000}


def test_files_that_go_or_change(tmp_path):
    run = RunWriter(tmp_path / "run")
    run.update(1, toy_groups(1))
    run.update(2, toy_groups(2))
    folder = run.path / "trajectories"
    index = TrajectoryIndex(folder)
    index.refresh()
    assert index.facets()["updates"] == [1, 2]
    (folder / "0001.parquet").unlink()
    table = pq.read_table(folder / "0002.parquet")
    pq.write_table(table.filter(pc.less(table["trajectory"], 4)), folder / "0002.parquet")
    index.refresh()
    assert index.facets()["updates"] == [2] and index.page(Query())[1] == 4


def test_disputes_by_hand():
    """Steps: (1, −1) are opposite, (−1, −1) agree, (0, 2) half disagree; trajectory 7 has the first two."""
    found = disputes(np.array([7, 7, 9]), np.array([[1.0, -1.0, 0.0], [-1.0, -1.0, 2.0]]))
    assert [(number, sign, opposite) for number, sign, _, opposite in found] == [(7, 0.5, 1), (9, 0.5, 0)]


def test_methods_are_those_of_the_project(run):
    """GRPO on the page is GRPO run over the groups themselves; the run's own method is what was recorded."""
    file = run.path / "trajectories/0002.parquet"
    scored = Scorer(methods_of).score(run.path, 2, file, ("grpo", "scpo"))
    stages = {"returns": {"invalid_penalty": 0.0}, "grpo": {}}
    truth = Pipeline.from_config(stages, "grpo").run(step_table(toy_groups(2)))
    assert scored.results[0].advantage == pytest.approx(truth.advantage, abs=1e-12)
    assert scored.results[1].advantage.tolist() == [row["advantage"] for row in rows(file)]


def test_steps_matches_and_peers(run, recorded):
    """Against what the method itself wrote: gigpo counts the rows at an anchor, scpo names the sibling."""
    file, matched = run.path / "trajectories/0001.parquet", 0
    for trajectory in range(16):
        view = trajectory_view(file, trajectory, None)
        steps = recorded[1, trajectory]
        assert [step.row["t"] for step in view.steps] == [row["t"] for row in steps]
        for step, row in zip(view.steps, steps, strict=True):
            assert len(step.peers) == row["gigpo.anchor_size"] - 1
            for place in step.peers:
                assert recorded[1, place.trajectory][place.t]["anchor"] == row["anchor"]
                assert recorded[1, place.trajectory][0]["group"] == row["group"]
            if row["scpo.sibling_t"] < 0:
                assert step.matches == ()
                continue
            (match,) = step.matches
            sibling = recorded[1, match.place.trajectory]
            assert sibling[0]["success"] and sibling[0]["index"] == match.place.index
            assert match.similarity == row["scpo.similarity"]
            matched += 1
    assert matched > 0


def test_methods_side_by_side_on_a_trajectory(run, recorded):
    file = run.path / "trajectories/0001.parquet"
    scored = Scorer(methods_of).score(run.path, 1, file, ("grpo",))
    view = trajectory_view(file, 3, scored)
    assert view.series == ["recorded", "grpo"]
    for step, row in zip(view.steps, recorded[1, 3], strict=True):
        assert step.advantage == (row["advantage"], scored.results[0].advantage[step.row["row"]])
    assert trajectory_view(file, 99, None) is None


def test_prompt_as_sent_by_hand():
    """A step that is not fresh was read after all since the last fresh one, its own responses included."""
    steps = [
        {"fresh": True, "prompt_ids": [1, 2], "response_ids": [3]},
        {"fresh": False, "prompt_ids": [4], "response_ids": [5, 6]},
        {"fresh": True, "prompt_ids": [7], "response_ids": [8]},
        {"fresh": False, "prompt_ids": [9], "response_ids": [0]},
    ]
    assert [prompt_ids(steps, t) for t in range(4)] == [[1, 2], [1, 2, 3, 4], [7], [7, 8, 9]]


def test_addresses_survive_a_round_trip():
    query = Query(3, 5, "near & far", "failure", "a+b%", True, "disputed", ("grpo", "scpo"), 4, (3, 17))
    assert Query.read(QueryParams(query.link()[1:]).multi_items()) == query
    assert Query().link() == "?"


class TestCatalogue:
    def test_states(self, tmp_path):
        now = [0.0]
        run = RunWriter(tmp_path / "r", overrides=["train.updates=2"])
        catalogue = Catalogue(tmp_path, clock=lambda: now[0])
        now[0] = catalogue.card("r").changed
        assert catalogue.card("r").state == "running"
        run.update(1, toy_groups(1))
        now[0] = catalogue.card("r").changed + 60
        assert catalogue.card("r").state == "running"
        assert catalogue.card("r").seconds_left == pytest.approx(
            16.0
        )  # one update left, as long as the first
        now[0] += 10_000
        assert catalogue.card("r").state == "stopped"
        run.update(2, toy_groups(2))
        assert catalogue.card("r").state == "finished"
        assert catalogue.card("r").curve == success(run)

    def test_runs_of_a_sweep_and_what_is_none(self, tmp_path):
        RunWriter(tmp_path / "sweep" / "one").evaluate(0, result([1]))
        RunWriter(tmp_path / "two")
        model = tmp_path / "two" / "checkpoints" / "0001"
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
        policy = tmp_path / "warmstart" / "policy"
        policy.mkdir(parents=True)
        (policy / "config.json").write_text("{}")
        (policy / "model.safetensors").write_text("")
        assert {card.id for card in Catalogue(tmp_path).cards()} == {"sweep/one", "two"}
        assert Catalogue(tmp_path).path("sweep/one") == tmp_path / "sweep" / "one"
        with pytest.raises(UnknownRun, match="there is no run"):
            Catalogue(tmp_path).path("sweep")


def success(run):
    records = map(json.loads, (run.path / "metrics.jsonl").read_text().splitlines())
    return [record["rollout/success"] for record in records]
