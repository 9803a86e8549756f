"""Where a page may go."""

import pytest

import bitfactor
from bitfactor.errors import InputError


@pytest.mark.parametrize(
    ("output", "form", "said"),
    [
        (".", "html", "expected a file to write, found a directory"),
        ("x.md", "html", "expected a name for html, found .md; pass format markdown"),
        ("x.html", "csv", "expected a name for csv, found .html; pass format html"),
    ],
)
def test_a_name_that_contradicts_the_format_is_refused(tmp_path, monkeypatch, output, form, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=said):
        bitfactor.report(tmp_path, output, format=form)
    assert list(tmp_path.iterdir()) == []
