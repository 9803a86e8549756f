"""The blocks of the tutorials are run as they stand, in order: Python, commands, C.

Only what takes minutes is smaller: SMALLER names the words that change.
"""

import os
import pickle
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import cv2
import numpy as np
import pytest
import uvicorn
from sklearn.datasets import load_digits
from tests.cases import wait_for

from bitfactor.cli import main
from bitfactor.data import Cifar10

PAGES = Path(__file__).parents[1] / "docs" / "tutorials"
TINY = "--blocks 1 1 --widths 8 16 --limit 32 --batch-size 8"
SMALLER = {
    "--minutes 30": f"--epochs 1 --size 32 {TINY}",
    "--channels 32 --epochs 20": "--channels 8 --depth 2 --epochs 1",
    "digits --epochs 2": f"digits --epochs 1 {TINY}",
    "train digits --latent tucker": f"train digits --latent tucker --epochs 1 {TINY}",
    "ablate digits --seeds 2": f"ablate digits --latent none tucker --seeds 1 --epochs 1 {TINY}",
    "compare photos --minutes 60": "compare photos --minutes 4 --runs 3",
    "--blocks 2 2 2 --widths 16 32 64 --epochs 4": "--blocks 1 1 --widths 8 16 --epochs 1 --batch-size 16",
}


def run_blocks(page, names):
    """Run the fenced blocks of a page in the working directory; C is written where the page says."""
    text = (PAGES / page).read_text()
    for language, block in re.findall(r"^```(python|sh|c|json)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if language == "python":
            exec(block, names)
        elif language == "sh":
            for line in block.replace("\\\n", " ").splitlines():
                run_line(line)
        else:
            Path("main.c" if language == "c" else "skeleton.json").write_text(block)


def run_line(line):
    for whole, small in SMALLER.items():
        line = line.replace(whole, small)
    words = shlex.split(line, comments=True)
    if words[0] == "bitfactor":
        assert main(words[1:]) == 0, line
    else:
        beside = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        subprocess.run(words, check=True, env=os.environ | {"PATH": beside, "OMP_NUM_THREADS": "1"})


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_binarize(capsys):
    run_blocks("binarize.md", {})
    accuracy = float(re.search(r"([\d.]+)% of the test images", capsys.readouterr().out)[1])
    assert accuracy > 80


def write_photos(classes, part=slice(0, 24)):
    """Write scans of 0 and 1 as photos of two classes."""
    scans = load_digits()
    for label, folder in enumerate(map(Path, classes)):
        folder.mkdir(parents=True)
        for i, scan in enumerate(scans.images[scans.target == label][part]):
            large = cv2.resize((scan * 15).astype(np.uint8), (48, 48), interpolation=cv2.INTER_CUBIC)
            cv2.imwrite(str(folder / f"{'one' if i == 0 else i}.jpg"), large)


def test_photos(capsys):
    write_photos(["photos/cat", "photos/dog"])
    run_blocks("photos.md", {})
    for made in ("confusion.png", "report.html", "photos.safetensors", "page/index.html"):
        assert Path(made).stat().st_size > 0


NET = """
from bitfactor.models import ResNet

def Net():
    return ResNet((1, 1), (8, 16), 10)
"""


@pytest.mark.slow
def test_the_commands_of_the_readme():
    write_photos(["photos/cat", "photos/dog"], slice(0, 170))
    Path("my.py").write_text(NET)
    lines = re.findall(r"^    bitfactor .*", (PAGES.parents[1] / "README.md").read_text(), re.MULTILINE)
    assert len(lines) == 8
    for line in lines:
        run_line(line.strip())
    for made in ("digits.safetensors", "site/index.html", "runs/s", "runs/b", "runs/c/compare.html"):
        assert Path(made).exists()


def test_paper_row(monkeypatch):
    layout, rng = Cifar10.layout, np.random.default_rng(0)
    folder = Path("data") / layout.folder
    folder.mkdir(parents=True)
    (folder / layout.names).write_bytes(pickle.dumps({layout.name_key.encode(): [b"one"] * 10}, protocol=2))
    for file in (*layout.train, layout.test):
        content = {
            b"data": rng.integers(0, 256, (64, 3072), np.uint8),
            layout.label_key.encode(): [*range(8)] * 8,
        }
        (folder / file).write_bytes(pickle.dumps(content, protocol=2))
    monkeypatch.setitem(SMALLER, "--small --row", "--small --seeds 1 --row")
    run_blocks("paper_row.md", {})
    assert "Tucker" in Path("runs/paper/table2.md").read_text()


def test_pose():
    run_blocks("pose.md", {})
    assert cv2.imread("found.png").shape == (96, 96, 3)


def test_c(capfd):
    run_blocks("c.md", {})
    assert "it is a 1" in capfd.readouterr().out
    assert Path("digits.bfp").exists()


def test_page():
    run_blocks("page.md", {})
    assert Path("site/net.bfp").exists()


def test_microcontroller():
    """The commands of its steps; estimated where the emulators are not installed."""
    write_photos(["photos/train/cat", "photos/train/airplane"], slice(0, 110))
    write_photos(["photos/val/cat", "photos/val/airplane"], slice(110, 130))
    text = (PAGES.parent / "microcontroller.md").read_text()
    lines = re.findall(r"^ {7}(bitfactor (?:.*\\\n)*.*)", text, re.MULTILINE)
    for line in lines:
        run_line(line.replace("\\\n", " "))
    assert len(lines) == 4
    assert Path("airplane_or_cat.h").exists()
    assert Path("airplane_or_cat/examples/Camera/Camera.ino").exists()


@pytest.mark.slow
def test_machines(capsys):
    run_blocks("machines.md", {})
    assert "accuracy" in capsys.readouterr().out


def test_serve(capsys):
    """Both programs stand alone. The server is on a free port; an unusable image is the client's error."""
    names = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", (PAGES / "serve.md").read_text(), re.DOTALL | re.MULTILINE)
    exec(blocks[0], names)
    # uvicorn's configuration of logs closes all handlers, and absl's closes the stderr that pytest captures.
    server = uvicorn.Server(uvicorn.Config(names["app"], port=0, log_level="error", log_config=None))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started, 60)
    port, clients = server.servers[0].sockets[0].getsockname()[1], {}
    exec(blocks[1].replace("8000", str(port)), clients)
    refused = clients["httpx"].post(clients["url"] + "/classify", files={"image": b"no image"})
    server.should_exit = True
    thread.join(10)
    assert refused.status_code == 400
    found = [int(answer["label"]) for answer in clients["answers"]]
    assert np.mean(found == load_digits().target[1437:1477]) > 0.9
    assert "requests per second" in capsys.readouterr().out
