"""The README's Python is run as it stands, on a smaller image."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 3
    names = {}
    for block in blocks:
        exec(block.replace("224", "64").replace("256", "72"), names)
    assert names["scores"].shape == (1, 1000)
    assert "layer4.1.conv2" in capsys.readouterr().out


def test_commands_of_the_readme_exist():
    from bitfactor.cli import COMMANDS

    shown = set(re.findall(r"^    bitfactor ([\w-]+)", README.read_text(), re.MULTILINE))
    assert shown == set(COMMANDS)
