"""Python of README and guide is run as it stands, with a narrower network on a smaller image."""

import re
import runpy
from functools import partial
from pathlib import Path

import pytest

import bitfactor
from bitfactor.models import ResNet
from bitfactor.runtime.zoo import Card

ROOT = Path(__file__).parents[1]
README, GUIDE = ROOT / "README.md", ROOT / "docs" / "guide.md"


@pytest.mark.parametrize(("page", "count"), [(README, 2), (GUIDE, 5)])
def test_python_of_a_page_runs(page, count, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    narrow = partial(ResNet, (2, 2, 2, 2), (16, 32, 48, 64))
    monkeypatch.setattr(bitfactor.models, "resnet18", narrow)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) == count
    names = {}
    for block in blocks:
        exec(block.replace("224", "64").replace("256", "72"), names)
    assert names["scores"].shape == (1, 1000)
    assert "layer4.1.conv2" in capsys.readouterr().out


def test_the_guide_shows_every_command_and_the_readme_none_that_is_missing():
    from bitfactor.cli import COMMANDS

    readme, guide = (
        set(re.findall(r"^    bitfactor ([a-z][\w-]+)", page.read_text(), re.MULTILINE))
        for page in (README, GUIDE)
    )
    assert readme <= set(COMMANDS) == guide


def test_the_readme_is_short():
    lines = README.read_text().splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 100


def test_the_networks_of_the_readme_are_as_their_cards_say():
    rows = re.findall(r"^\|.*`(\S+)` \| ([\d.]+) % ?\S* \| ([\d,]+) \|$", README.read_text(), re.MULTILINE)
    assert len(rows) == 3
    for name, accuracy, size in rows:
        card = Card.of(name)
        assert (accuracy, size) == (f"{100 * card.accuracy:.1f}", f"{card.bytes:,}")


def test_the_drawing_is_that_of_its_script():
    drawn = runpy.run_path(str(ROOT / "docs" / "images" / "chain.py"))["drawn"]
    for theme in ("light", "dark"):
        assert drawn(theme) == (ROOT / "docs" / "images" / f"chain-{theme}.svg").read_text()


def test_one_version_stands_everywhere():
    read = {name: (ROOT / name).read_text() for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md")}
    assert f'\nversion = "{bitfactor.__version__}"\n' in read["pyproject.toml"]
    assert f"\nversion: {bitfactor.__version__}\n" in read["CITATION.cff"]
    assert f"\n## {bitfactor.__version__}\n" in read["CHANGELOG.md"]
