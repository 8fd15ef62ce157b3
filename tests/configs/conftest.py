"""What the tests of configurations share."""

import pytest


@pytest.fixture
def write(tmp_path):
    """Writes an experiment file and returns its path."""

    def write(name, text):
        path = tmp_path / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write
