"""Generated pages are current, and what the documents link to or name exists."""

import re
from pathlib import Path

import pytest

from commands.docs.pages import DOCS, pages

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *DOCS.glob("*.md")]


@pytest.mark.parametrize("name", sorted(pages()))
def test_generated_pages_are_current(name):
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], "run `make docs`"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_paths_named_in_documents_exist(path):
    folders = "agent|commands|configs|credit|docs|envs|eval|rl|tests"
    for name in re.findall(rf"`((?:{folders})/[\w./]*(?:\.\w+|/))`", path.read_text(encoding="utf-8")):
        assert "NAME" in name or (ROOT / name).exists(), name
