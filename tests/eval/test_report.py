"""The report: complete for a finished run, honest for a partial one, one file that needs nothing else."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from eval.report.run_report import write_report
from eval.result import EvalError
from tests.eval.synthetic import RunWriter, result, toy_groups

ALARMS = [
    {"update": 2, "alarm": "clipped", "raised": True, "text": "for 5 updates: clipping <b>leaves</b> 0.6%"},
    {
        "update": 3,
        "alarm": "no_contrast",
        "raised": True,
        "text": "for 5 updates: no group's attempts differ",
    },
    {"update": 4, "alarm": "clipped", "raised": False, "text": ""},
]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PHASES = ("rollout", "learner", "eval", "credit", "sync", "store")
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Ids, links and whether every element is closed in order."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.tags, self._open, self.text = [], [], set(), [], ""
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in VOID:
            self._open.append(tag)
        for key, value in attrs:
            if key == "id":
                self.ids.append(value)
            if key in ("href", "src", "srcset", "data", "action"):
                self.links.append(value)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_data(self, data):
        self.text += data


def render(run, **options):
    path = write_report(run.path, **options)
    assert path == run.path / "report.html"
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def html(finished_run):
    meanings = {"rollout/success/*": "the same within a family", "train.lr": "how fast"}
    return render(finished_run, meanings=meanings)


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_result_and_figures(page):
    assert "held-out success 0.38 [0.33,0.43] → 0.52 [0.47,0.57] on 400 games · SCPO · 3 updates" in page.text
    assert "56 were gained and 0 lost" in page.text
    assert "do not overlap" in page.text
    for title in (
        "Success rate",
        "Return of a trajectory",
        "Entropy",
        "KL",
        "Gradient norm",
        "Time of an update",
    ):
        assert title in page.text
    assert {"svg", "table", "details"} <= page.tags


def test_families_credit_metrics_and_configuration(page):
    for part in ("family-0", "family-3", "all tasks", "credit/scpo/credited_fraction"):
        assert part in page.text
    assert "are matched" in page.text  # what credit says of its own metrics
    assert "the same within a family" in page.text
    assert "credit.stages.scpo.theta" in page.text
    assert "alfworld_cpu.yaml" in page.text and "command line" in page.text
    assert "how fast" in page.text


def test_siblings_are_shown_with_their_credit(page, html):
    assert "✓ Success" in page.text and "✗ Failure" in page.text
    assert re.search(r"credit\s+0\.\d\d|credit\s+1\.00", page.text)
    assert re.search(r"like\s+step \d+\s+of #\d", page.text)
    assert re.search(r"return\s+\d\.\d\d → \d\.\d\d", page.text)  # before and after the credit
    assert re.search(r'href="#pair0-l-\d+"', html)
    assert ":has(#pair0-r-" in html
    assert "You in room" in page.text and "go right" in page.text


def test_the_file_stands_alone(page, html):
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert "script" not in page.tags
    assert "url(http" not in html and "@import" not in html
    assert "default-src 'none'" in html


def test_links_lead_somewhere_and_ids_are_unique(page, html):
    assert len(page.ids) == len(set(page.ids))
    targets = {link[1:] for link in page.links if link.startswith("#")} | set(
        re.findall(r"url\(#([^)]+)\)", html)
    )
    assert targets <= set(page.ids)


def test_figures_follow_the_page_and_name_themselves(html):
    figures = re.findall(r"<svg [^>]*>", html)
    drawn = [figure for figure in figures if "aria-hidden" not in figure]
    assert len(drawn) > 8
    assert all('role="img"' in figure and "aria-label=" in figure for figure in drawn)
    assert "#0101" not in html  # every marker colour became a variable
    assert set(re.findall(r"font-family: ([^;\"]+)", html)) == {"var(--font)"}
    assert "Bitstream" not in html


def test_same_run_same_report(finished_run, html):
    assert render(finished_run) == render(finished_run)


def test_text_from_outside_is_escaped(tmp_path):
    run = RunWriter(tmp_path / "run")
    groups = toy_groups(1)
    for trajectory in groups[0]:
        trajectory.instruction = "<script>alert(1)</script>"
    for group in groups:
        for trajectory in group:
            for step in trajectory.steps:
                step.thought = "<b>&amp;</b> $x$"
    run.update(1, groups)
    run.evaluate(1, result([1, 0], families=2))
    html = render(run)
    assert "script" not in Page(html).tags
    assert "&lt;b&gt;&amp;amp;&lt;/b&gt;" in html


@pytest.mark.parametrize("method", ["grpo", "gigpo", "rloo"])
def test_methods_without_sibling_credit(tmp_path, method):
    run = RunWriter(tmp_path / method, method=method)
    run.update(1, toy_groups(1))
    text = Page(render(run)).text
    assert "✗ Failure" in text and "✓ Success" in text
    assert "similarity" not in text
    assert f"credit/{method}/" in text


@pytest.mark.parametrize(("error", "outcome"), [(0.0, "success"), (1.0, "failure")])
def test_groups_with_one_outcome(tmp_path, error, outcome):
    run = RunWriter(tmp_path / outcome)
    groups = toy_groups(1, error=error)
    if outcome == "failure":
        groups = [g for g in groups if not any(trajectory.success for trajectory in g)]
        assert groups
    run.update(1, groups)
    assert f"({outcome}) beside" in Page(render(run)).text


def test_a_lone_trajectory(tmp_path):
    run = RunWriter(tmp_path / "lone")
    run.update(1, toy_groups(1, groups=1, group_size=1))
    assert "#0" in Page(render(run)).text


def test_the_newest_group_with_credit_is_shown(tmp_path):
    run = RunWriter(tmp_path / "late")
    run.update(1, toy_groups(1))
    run.update(2, toy_groups(2))
    run.update(3, toy_groups(3, error=0.0))  # nothing to credit
    assert "of update 2" in Page(render(run)).text


def test_partial_runs(tmp_path):
    run = RunWriter(tmp_path / "run")
    text = Page(render(run)).text
    for part in (
        "No update and no evaluation",
        "No evaluation",
        "No credit metrics",
        "No trajectories",
        "No metrics",
    ):
        assert part in text
    run.evaluate(0, result([1, 0, 0, 1]))
    text = Page(render(run)).text
    assert "Only the starting policy has been evaluated yet" in text
    run.update(1, toy_groups(1))
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"update": 2, "rollout/suc')  # killed while writing
    assert "No credit metrics" not in Page(render(run)).text
    run.evaluate(1, result([1, 0, 0]))
    assert "played different tasks" in Page(render(run)).text


def test_a_run_without_provenance(tmp_path):
    run = RunWriter(tmp_path / "run")
    (run.path / "sources.json").unlink()
    text = Page(render(run)).text
    assert "train.lr" in text and "command line" not in text


def test_trajectories_switched_off(tmp_path):
    run = RunWriter(tmp_path / "run")
    run.update(1, toy_groups(1))
    shutil.rmtree(run.path / "trajectories")
    assert "No trajectories have been written" in Page(render(run)).text


@pytest.mark.parametrize(
    ("name", "text"),
    [("config.json", "{"), ("metrics.jsonl", "[1]\n"), ("sources.json", "["), ("eval/0000.json", "x")],
)
def test_broken_files_are_named(tmp_path, name, text):
    run = RunWriter(tmp_path / "run")
    run.evaluate(0, result([1]))
    (run.path / name).write_text(text)
    with pytest.raises(EvalError, match=name):
        write_report(run.path)


def test_no_run_folder(tmp_path):
    with pytest.raises(EvalError, match="config.json"):
        write_report(tmp_path)


def browse(path, profile, width=1280):
    """Opens a file in a headless browser; returns (the page's DOM, its console messages)."""
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    command += [
        f"--user-data-dir={profile}",
        f"--window-size={width},900",
        "--enable-logging=stderr",
        "--dump-dom",
    ]
    done = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


@pytest.mark.skipif(BROWSER is None, reason="needs chromium (apt-get install chromium)")
def test_in_a_browser(finished_run, html, tmp_path):
    """No console message. Every request would be one: the page's own policy refuses all of them, as the
    second page, which asks for a picture from elsewhere, shows."""
    dom, messages = browse(finished_run.path / "report.html", tmp_path / "profile")
    assert messages == []
    assert "credit/scpo/credited_fraction" in dom
    assert 'id="pair0-l-0"' in dom
    spoiled = tmp_path / "spoiled.html"
    spoiled.write_text(html.replace("<main>", '<main><img src="http://127.0.0.1:9/x.png">'), encoding="utf-8")
    assert browse(spoiled, tmp_path / "profile")[1]


def test_costs_and_credit_curves(page, finished_run):
    """Each of the three updates took 0.3 s for credit."""
    for part in ("Time and tokens", "credited through a sibling", "Steps without a peer", "Spread of the"):
        assert part in page.text
    records = [json.loads(line) for line in (finished_run.path / "metrics.jsonl").read_text().splitlines()]
    parts = sum(record.get(f"time/{name}", 0) for record in records for name in PHASES)
    whole = max(parts, sum(record.get("time/update", 0) for record in records))
    assert re.search(rf"credit\s*1 s\s*{90 / whole:.1f} %", page.text)
    assert "does not say on what it ran" in page.text


def test_a_run_that_learnt_nothing_says_so_first(tmp_path):
    run = RunWriter(tmp_path / "run")
    run.update(1, toy_groups(1))
    assert "alarm" not in Page(render(run)).text
    (run.path / "alarms.jsonl").write_text("".join(json.dumps(event) + "\n" for event in ALARMS))
    text = " ".join(Page(render(run)).text.split())
    held = text.index("Update 3: for 5 updates: no group's attempts differ")
    ended = text.index("Update 2, until 4: for 5 updates: clipping <b>leaves</b> 0.6%")
    assert held < ended < text.index("Held-out success before")
