"""What a plain install can do: commands on a file run without torch, and the others name what they need."""

import json

import cv2
import numpy as np
import pytest
import scipy.io

ZOO = ("digits", "lsp-hourglass")


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "photo.png"
    cv2.imwrite(str(path), np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8))
    return path


@pytest.mark.parametrize("model", ZOO)
def test_predict(without_torch, image, model):
    done = without_torch(["predict", model, image, "--json"])
    assert done.returncode == 0, done.stderr
    assert str(image) in done.stdout


def test_predict_draws_poses(without_torch, image, tmp_path):
    done = without_torch(["predict", "lsp-hourglass", image, "-o", tmp_path / "drawn.png"])
    assert done.returncode == 0, done.stderr
    assert cv2.imread(str(tmp_path / "drawn.png")).shape == (40, 30, 3)


def test_inspect(without_torch, tmp_path):
    done = without_torch(["inspect", "digits", "--svg", tmp_path / "net.svg", "--json"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["provenance"]["recipe"] == "digits"
    assert (tmp_path / "net.svg").exists()


def test_bench(without_torch):
    done = without_torch(["bench", "digits", "--runs", "2", "--json"])
    assert done.returncode == 0, done.stderr
    assert [engine["name"].split()[0] for engine in json.loads(done.stdout)["engines"]] == ["bitfactor"]


@pytest.mark.parametrize(
    "command", ["export digits -o net.c", "freeze digits -o net.bfp", "page digits -o net"]
)
def test_other_targets(without_torch, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = without_torch(command.split())
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir())


def test_zoo(without_torch):
    assert all(name in without_torch(["zoo"]).stdout for name in ZOO)
    assert without_torch(["zoo", "digits"]).returncode == 0


def test_pckh(without_torch, tmp_path):
    keypoints = np.random.default_rng(0).uniform(0, 100, (16, 2, 5))
    heads = np.stack([np.zeros((2, 5)), np.full((2, 5), 50.0)])
    truth = {"pos_gt_src": keypoints, "jnt_missing": np.zeros((16, 5)), "headboxes_src": heads}
    scipy.io.savemat(tmp_path / "truth.mat", truth)
    scipy.io.savemat(tmp_path / "found.mat", {"preds": keypoints.transpose(2, 0, 1)})
    done = without_torch(["pckh", tmp_path / "found.mat", "--truth", tmp_path / "truth.mat"])
    assert done.returncode == 0, done.stderr
    assert "100.00" in done.stdout


@pytest.mark.parametrize("command", ["--help", "predict --help", "inspect --help", "bench --help"])
def test_help(without_torch, command):
    done = without_torch(command.split())
    assert done.returncode == 0, done.stderr
    assert "usage: bitfactor" in done.stdout


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("train digits --out run", "train"),
        ("export . -o net.safetensors", "train"),
        ("ablate digits --out study", "train"),
        ("report run -o page.html", "train"),
        ("bench digits --runs 2 --against torch", "bench"),
        ("bench digits --runs 2 --chart net.png", "cli"),
    ],
)
def test_what_needs_more_names_the_extra(without_torch, command, extra, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = without_torch(command.split())
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"found that it is not installed; pip install 'bitfactor[{extra}]'")
    assert not list(tmp_path.iterdir())


def test_a_command_without_its_parser_says_what_to_install(without):
    done = without(["tyro"], "from bitfactor.cli import main\nsys.exit(main(['zoo']))")
    assert done.returncode == 2
    assert "the package tyro, found that it is not installed; pip install 'bitfactor[cli]'" in done.stderr


@pytest.mark.parametrize("package", ["cv2", "rich", "tyro"])
def test_a_plain_install_says_what_a_command_needs(without, package, image):
    """In one line that names the extra, whatever of it is missing."""
    done = without(
        [package], f"from bitfactor.cli import main\nsys.exit(main(['predict', 'digits', {str(image)!r}]))"
    )
    if package == "rich" and done.returncode == 0:
        return  # it is for videos and tables
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith(
        f"the package {package}, found that it is not installed; pip install 'bitfactor[cli]'"
    )


def test_a_confusion_matrix_needs_no_torch(without, tmp_path):
    """It needs matplotlib, and scikit-learn for the digits."""
    code = "from bitfactor.cli import main\nsys.exit(main(sys.argv[1:]))"
    missing = ["torch", "lightning_fabric", "torchmetrics", "jinja2"]
    done = without(missing, code, "evaluate", "digits", "--confusion", tmp_path / "matrix.png")
    assert done.returncode == 0, done.stderr
    assert cv2.imread(str(tmp_path / "matrix.png")) is not None
    lacking = without([*missing, "matplotlib"], code, "evaluate", "digits", "--confusion", tmp_path / "b.png")
    assert lacking.returncode == 2
    assert "pip install 'bitfactor[cli]'" in lacking.stderr


@pytest.mark.parametrize("name", ["freeze", "inspect", "bench"])
def test_functions_on_files_need_numpy_and_safetensors_alone(without, name, tmp_path):
    arguments = {
        "freeze": f"'digits', {str(tmp_path / 'n.bfp')!r}",
        "inspect": "'digits'",
        "bench": "'digits', runs=1",
    }
    missing = ["torch", "cv2", "tyro", "rich", "scipy", "h5py", "matplotlib", "sklearn"]
    done = without(missing, f"import bitfactor\nprint(bitfactor.{name}({arguments[name]}))")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["evaluate", "check_data", "pose"])
def test_a_name_that_needs_opencv_names_the_extra(without, name):
    done = without(["torch", "cv2", "tyro", "rich"], f"import bitfactor\nbitfactor.{name}")
    assert done.stderr.splitlines()[-1].endswith(
        f"bitfactor.{name}: expected the package cv2, found that it is not installed; "
        "pip install 'bitfactor[cli]'"
    )


def test_an_image_without_opencv_names_the_extra(without):
    code = "import numpy, bitfactor\nbitfactor.predict('digits', numpy.zeros((9, 9, 3), 'uint8'))"
    done = without(["torch", "cv2", "tyro", "rich"], code)
    assert done.stderr.splitlines()[-1].endswith("pip install 'bitfactor[cli]'")
