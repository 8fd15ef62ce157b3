"""Replay: the result and the page."""

import re
import weakref

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from credit.base import Reweighter
from credit.pipeline import Pipeline
from credit.scorer import make_scorer
from credit.signals import Estimated, PerToken
from eval.replay.page import write_page
from eval.replay.recorded import Method, read_run, run_files
from eval.replay.replay import replay
from eval.replay.trajectory_file import TrajectoryFile
from eval.result import EvalError
from tests.eval.made import made, written
from tests.eval.test_report import BROWSER, Page, browse

GRPO = {"returns": {}, "grpo": {}}


GIGPO = {"returns": {}, "gigpo": {}}


def method(name, stages, **services):
    return Method(name, Pipeline.from_config(stages, name), services, stages)


# --- measures ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replayed(finished_run, tmp_path_factory):
    """SCPO (as in the run), GiGPO and GRPO over the toy run."""
    folder = tmp_path_factory.mktemp("replay")
    scpo = finished_run.loaded.config.credit.stages
    methods = [
        method("scpo", scpo, pair_scorer=make_scorer("lexical")),
        method("gigpo", {"returns": scpo["returns"], "gigpo": scpo["gigpo"]}),
        method("grpo", GRPO),
    ]
    result = replay(
        read_run(run_files(finished_run.path), tokens=True), methods, folder / "replay.parquet", most=10
    )
    write_page(folder / "replay.html", result, methods, title="toy", own="scpo", notes=["Mind <this>."])
    return folder, result, methods


def test_the_runs_own_method_gives_exactly_the_recorded_advantages(replayed):
    folder, result, _ = replayed
    table = pq.read_table(folder / "replay.parquet").to_pydict()
    assert any(table["advantage.recorded"])
    assert table["advantage.scpo"] == table["advantage.recorded"]
    assert result.agreement.methods[0].unlike == 0
    assert table["advantage.grpo"] != table["advantage.recorded"]


def test_every_step_of_the_run_is_in_the_table_with_the_methods_columns(replayed, finished_run):
    folder, result, _ = replayed
    table = pq.read_table(folder / "replay.parquet")
    recorded = [pq.read_table(path) for path in run_files(finished_run.path).values()]
    assert table.num_rows == result.steps == sum(part.num_rows for part in recorded)
    for name in ("update", "group", "trajectory", "index", "t", "action", "success", "family"):
        assert table[name].to_pylist() == [value for part in recorded for value in part[name].to_pylist()], (
            name
        )
    for name in ("scpo.scpo.similarity", "scpo.gigpo.step", "gigpo.gigpo.step", "return.grpo"):
        assert name in table.schema.names
    assert table["scpo.scpo.credit"].to_pylist() == [
        v for p in recorded for v in p["scpo.credit"].to_pylist()
    ]
    assert pq.ParquetFile(folder / "replay.parquet").num_row_groups == 3
    assert not list(folder.glob("*.partial"))


def test_the_page_shows_the_most_disputed_trajectories_of_both_outcomes(replayed):
    folder, result, _ = replayed
    shown = result.shown
    assert len(shown) == 10
    assert [view.disagreement for view in shown] == sorted((v.disagreement for v in shown), reverse=True)
    assert sum(view.success for view in shown) == 5
    page = Page((folder / "replay.html").read_text(encoding="utf-8"))
    assert f"10 of {result.trajectories} trajectories" in page.text
    for part in ("scpo", "gigpo", "grpo", "exactly the recorded advantages", "Mind <this>.", "go right"):
        assert part in page.text
    assert page.text.count("✓ success") == page.text.count("✗ failure") == 5


def test_a_matched_step_names_its_sibling(replayed, finished_run, tmp_path):
    """As the run's own file has it, by trajectory number."""
    _, _, methods = replayed
    files = run_files(finished_run.path)
    result = replay(read_run(files, tokens=False), methods, tmp_path / "replay.parquet", most=1000)
    shown = {
        (view.update, view.facts.group, view.facts.index, step.t): [
            (m.method, m.index, m.t) for m in step.matches
        ]
        for view in result.shown
        for step in view.steps
    }
    assert len(shown) == result.steps
    for update, path in files.items():
        rows = pq.read_table(path).to_pylist()
        index = {row["trajectory"]: row["index"] for row in rows}
        for row in rows:
            matched = row["scpo.sibling_t"] >= 0
            expected = [("scpo", index[row["scpo.sibling"]], row["scpo.sibling_t"])] if matched else []
            assert shown[update, row["group"], row["index"], row["t"]] == expected
    write_page(tmp_path / "replay.html", result, methods, title="toy")
    text = Page((tmp_path / "replay.html").read_text(encoding="utf-8")).text
    assert text.count("scpo: like step") == sum(map(len, shown.values())) > 0


def test_the_page_needs_no_script_and_no_network(replayed):
    html = (replayed[0] / "replay.html").read_text(encoding="utf-8")
    page = Page(html)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert "script" not in page.tags
    assert "url(http" not in html and "@import" not in html
    assert "default-src 'none'" in html
    assert "prefers-color-scheme: dark" in html and "max-width: 48rem" in html
    assert len(page.ids) == len(set(page.ids))


def test_the_same_replay_is_the_same_page(replayed, finished_run, tmp_path):
    folder, _, methods = replayed
    again = replay(
        read_run(run_files(finished_run.path), tokens=True), methods, tmp_path / "replay.parquet", most=10
    )
    write_page(tmp_path / "replay.html", again, methods, title="toy", own="scpo", notes=["Mind <this>."])
    assert (tmp_path / "replay.html").read_bytes() == (folder / "replay.html").read_bytes()


def test_too_few_of_one_outcome_leave_room_for_the_other(tmp_path):
    names = (("win", 3), *((f"loss {i}", 2) for i in range(5)))
    recording = TrajectoryFile(written(tmp_path, made(trajectories=names))).read()
    result = replay(recording, [method("gigpo", GIGPO)], tmp_path / "out.parquet", most=4)
    assert sorted(view.facts.trajectory.partition(" ")[0] for view in result.shown) == [
        "loss",
        "loss",
        "loss",
        "win",
    ]


def test_one_method_alone(tmp_path):
    recording = TrajectoryFile(written(tmp_path, made())).read()
    methods = [method("grpo", GRPO)]
    result = replay(recording, methods, tmp_path / "out.parquet")
    assert result.agreement.pairs == []
    write_page(tmp_path / "page.html", result, methods, title="made")
    text = Page((tmp_path / "page.html").read_text(encoding="utf-8")).text
    assert "Largest first" in text and "opposite signs" not in text


def test_text_from_a_file_is_escaped(tmp_path):
    rows = made(instruction="<script>alert(1)</script>", family='"><b>', observation="<i>room</i>")
    methods = [method("grpo", GRPO), method("gigpo", GIGPO)]
    result = replay(TrajectoryFile(written(tmp_path, rows)).read(), methods, tmp_path / "out.parquet")
    write_page(tmp_path / "page.html", result, methods, title="made")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert not {"script", "i>"} & page.tags
    assert "<i>room</i>" in page.text


def test_an_empty_file_says_so(tmp_path):
    table = pa.Table.from_pylist(made()).slice(0, 0)
    pq.write_table(table, tmp_path / "made.parquet")
    recording = TrajectoryFile(tmp_path / "made.parquet").read()
    with pytest.raises(EvalError, match="no rows"):
        replay(recording, [method("grpo", GRPO)], tmp_path / "out.parquet")


class MeanLogp(Reweighter):
    """The mean log-probability of a step's tokens, in place of its advantage."""

    @property
    def token_columns(self):
        return frozenset({"logp_sampled"})

    def reweight(self, table, signals, context):
        return Estimated(PerToken(table.tokens["logp_sampled"]))


def test_recorded_log_probabilities_are_those_of_training(finished_run, tmp_path):
    """float32, as the learner and the probes have them, one value per token in the order of the rows."""
    pipeline = Pipeline((*Pipeline.from_config(GRPO).stages, MeanLogp()), "logp")
    recording = read_run(run_files(finished_run.path), tokens=True)
    replay(recording, [Method("logp", pipeline, {})], tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    recorded = [
        logps for path in run_files(finished_run.path).values() for logps in _column(path, "logp_sampled")
    ]
    assert table["token_advantage.logp"].to_pylist() == [np.float32(logps).tolist() for logps in recorded]


def _column(path, name):
    return pq.read_table(path)[name].to_pylist()


def test_updates_that_were_not_recorded_are_refused(finished_run, tmp_path):
    assert list(run_files(finished_run.path, range(2, 9))) == [2, 3]
    with pytest.raises(EvalError, match=r"update 7 .*recorded: 1, 2, 3"):
        run_files(finished_run.path, range(7, 8))
    with pytest.raises(EvalError, match="no trajectories"):
        run_files(tmp_path)


@pytest.mark.parametrize("updates", [[1, 2], [2], [1, 3]])
def test_a_method_with_a_state_says_when_it_missed_updates(tmp_path, updates):
    rows = [row for update in updates for row in made(update)]
    methods = [method("sso", {"returns": {}, "sso": {}, "gigpo": {}}), method("grpo", GRPO)]
    result = replay(TrajectoryFile(written(tmp_path, rows)).read(), methods, tmp_path / "out.parquet")
    assert result.broken_state == ([] if updates == [1, 2] else ["sso"])


def test_a_filter_marks_what_it_would_leave_out(tmp_path):
    rows = made() + made(group="lost", trajectories=(("loss 1", 2), ("loss 2", 2)))
    stages = {"dynamic_sampling": {}, **GRPO}
    recording = TrajectoryFile(written(tmp_path, rows)).read()
    replay(recording, [method("dapo", stages)], tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["kept.dapo"].to_pylist() == [True] * 5 + [False] * 4


def test_an_update_without_a_methods_columns_leaves_them_empty(tmp_path):
    """A stage may leave out what it has nothing to say of; the file's columns are the same all through."""

    class Sometimes(Pipeline):
        def run(self, table, *arguments, **options):
            result = super().run(table, *arguments, **options)
            return result if options["step"] == 1 else type(result)(**{**vars(result), "columns": {}})

    pipeline = Sometimes(Pipeline.from_config(GIGPO).stages, "gigpo")
    recording = TrajectoryFile(written(tmp_path, made(1) + made(2))).read()
    replay(recording, [Method("gigpo", pipeline, {})], tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["gigpo.gigpo.anchor_size"].to_pylist() == [2, 2, 1, 2, 2] + [None] * 5


def test_memory_holds_one_update(tmp_path):
    """When an update is asked for, of those before it at most the last is still there."""
    file = TrajectoryFile(written(tmp_path, [row for update in range(1, 6) for row in made(update)]))
    seen = []

    def recording():
        for recorded in file.read():
            assert [table() for table in seen[:-1]] == [None] * len(seen[:-1])
            seen.append(weakref.ref(recorded.table))
            yield recorded

    replay(recording(), [method("grpo", GRPO), method("gigpo", GIGPO)], tmp_path / "out.parquet", most=1)
    assert len(seen) == pq.ParquetFile(tmp_path / "out.parquet").num_row_groups == 5


@pytest.mark.skipif(BROWSER is None, reason="needs chromium (apt-get install chromium)")
def test_in_a_browser(replayed, tmp_path):
    """No console message: every request would be one, since the page's own policy refuses all of them."""
    dom, messages = browse(replayed[0] / "replay.html", tmp_path / "profile", width=390)
    assert messages == []
    assert 'class="cells"' in dom


@pytest.mark.skipif(BROWSER is None, reason="needs chromium (apt-get install chromium)")
@pytest.mark.parametrize(("choice", "left"), [("", 10), ("won", 5), ("lost", 5)])
def test_the_filter_works_without_scripts(replayed, tmp_path, choice, left):
    """Chooses an outcome by hand, and lets a script of the test count what is still to be seen."""
    html = (replayed[0] / "replay.html").read_text(encoding="utf-8")
    html = re.sub(r"<meta http-equiv[^>]*>", "", html)
    if choice:
        html = html.replace('id="all" checked', 'id="all"').replace(
            f'id="{choice}"', f'id="{choice}" checked'
        )
    count = (
        "<script>document.title = [...document.querySelectorAll('.traj')]"
        ".filter(x => getComputedStyle(x).display !== 'none').length</script></body>"
    )
    page = tmp_path / "filtered.html"
    page.write_text(html.replace("</body>", count), encoding="utf-8")
    dom, _ = browse(page, tmp_path / "profile")
    assert f"<title>{left}</title>" in dom
