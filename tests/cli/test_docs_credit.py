"""The page of credit methods says everything there is, as its sources say it."""

import re

import pytest

from commands.docs.credit import COST, _blocks, _prose, _sources, render
from configs.methods import CONFIGS, methods, read_method
from credit.pipeline import Pipeline
from credit.registry import all_stages


@pytest.fixture(scope="module")
def page():
    return render()


@pytest.mark.parametrize("name", methods())
def test_every_method_is_there_with_its_stages_needs_and_source(page, name):
    pipeline = Pipeline.from_yaml(CONFIGS / "credit" / f"{name}.yaml")
    (row,) = [line for line in page.splitlines() if line.startswith(f"| [`{name}`](#{name}) |")]
    assert re.findall(r"\(#stage-(\w+)\)", row) == [stage.name() for stage in pipeline.stages]
    for need in pipeline.requires | pipeline.token_columns:
        assert f"`{need}`" in row
        assert need in COST, "say what it costs"
    assert "https://arxiv.org/abs/" in row or "| no paper |" in row, "say where it is from"
    assert f"\n### `{name}`\n" in page


@pytest.mark.parametrize(
    ("method", "world", "differs", "plain", "same"),
    [
        ("hgpo", "webshop", "env.max_steps=30", "env.max_steps=15", "credit.hgpo.alpha=1.0"),
        ("graphgpo", "webshop", "prompt.window=5632", "prompt.window=4608", "credit.gigpo.omega=1.0"),
        ("scpo", "webshop", "credit.gigpo.norm=mean", "credit.gigpo.norm=mean_std", "credit.gigpo.omega=1.0"),
        ("rlsd", "alfworld", "credit.rlsd.decay=100", "credit.rlsd.decay=50", "credit.rlsd.lam=0.5"),
    ],
)
def test_published_settings_stand_beside_the_plain_ones(page, method, world, differs, plain, same):
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{method}` | {world} |")]
    published, shipped, source = [cell.strip() for cell in row.split("|")[3:6]]
    assert f"**`{differs}`**" in published and f"`{plain}`" in shipped
    assert f" `{same}`" in f" {published}" and f"**`{same}`**" not in published and same not in shipped
    assert read_method(method).published[world].source == source.replace("\\@", "@")


@pytest.mark.parametrize("name", all_stages())
def test_every_stage_is_there_with_every_line_of_its_docstring(page, name):
    section = page.partition(f"\n### Stage `{name}`\n")[2].partition("\n### ")[0]
    for line in all_stages()[name].__doc__.splitlines():
        assert line.strip() in section or _prose(line.strip()) in section
    for column, doc in all_stages()[name].columns_doc.items():
        assert f"- `{column}`: {_prose(doc)}" in section


@pytest.mark.parametrize("name", all_stages())
def test_every_stage_says_where_it_is_from(name):
    assert _sources(all_stages()[name].__doc__) != "–", "cite a paper (arXiv NNNN.NNNNN), or say `No paper`"


def test_links_within_the_page_lead_somewhere(page):
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    anchors = {heading.replace("`", "").lower().replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= anchors


def test_indented_lines_are_kept_as_they_stand():
    text = "Says:\n    a_i = b_i\n      + c_i < d\n\nThen <this>, `x < y`."
    assert list(_blocks(text)) == ["Says:", "```text\na_i = b_i\n  + c_i < d\n```", r"Then \<this>, `x < y`."]


def test_a_method_of_ones_own_has_no_paper():
    assert _sources("A~ = A. No paper: of this project.") == "no paper"
    assert _sources("A~ = A.") == "–"


def test_a_papers_number_may_stand_on_the_next_line():
    assert _sources("arXiv\n    2503.20783 and arXiv 2402.03300, again arXiv 2503.20783") == (
        "[2503.20783](https://arxiv.org/abs/2503.20783), [2402.03300](https://arxiv.org/abs/2402.03300)"
    )
