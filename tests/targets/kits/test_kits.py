"""A board's directory is whole, its sources compile, and a frame gives what Python gives for it."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from tests.cases import SMALL, slow_beside
from tests.integers import run

from bitfactor.common.errors import InputError
from bitfactor.format import load
from bitfactor.format.integer import integer_graph
from bitfactor.pose.images import resized, with_channels
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.kits import Board, write_kit

STUBS = Path(__file__).parent / "stubs"  # of the vendors' headers
STRICT = ("-ffreestanding", "-Wall", "-Wextra", "-Werror", "-Os", "-c", "-o", "out.o")
ZIG = (sys.executable, "-m", "ziglang")
ARM = ("-target", "thumb-freestanding-eabi", "-mcpu=cortex_m0plus")
RISCV = ("-target", "riscv32-freestanding", "-mcpu=baseline_rv32-a-d-f")
COMPILERS = {
    "zig for a Cortex-M0+": ([*ZIG, "cc", *ARM], [*ZIG, "c++", *ARM]),
    "zig for RV32": ([*ZIG, "cc", *RISCV], [*ZIG, "c++", *RISCV]),
}
for prefix, flags in (
    ("arm-none-eabi-", ["-mcpu=cortex-m0plus", "-mthumb"]),
    ("riscv64-unknown-elf-", ["-march=rv32imac", "-mabi=ilp32"]),
):
    if shutil.which(f"{prefix}g++"):
        COMPILERS[prefix] = ([f"{prefix}gcc", *flags], [f"{prefix}g++", *flags])


@pytest.fixture(autouse=True)
def no_emulator(monkeypatch):
    """Instructions are estimated, which is quick."""
    monkeypatch.setattr("bitfactor.targets.c99.board.shutil.which", lambda _: None)


@pytest.fixture(params=get_args(Board))
def kit(request, tmp_path):
    return write_kit(load(file_of("digits")), tmp_path / "my-digits", request.param)


@pytest.mark.parametrize(
    ("kit", "compiler"),
    slow_beside(zip(get_args(Board), cycle(COMPILERS), strict=False), product(get_args(Board), COMPILERS)),
    indirect=["kit"],
)
def test_its_sources_compile(kit, compiler, tmp_path):
    c, cplusplus = COMPILERS[compiler]
    includes = [f"-I{STUBS}", f"-I{kit.directory / 'src'}"]
    sources = [kit.directory / name for name in kit.files if name.endswith(".c")]
    for source in sources:
        subprocess.run([*c, "-std=gnu11", *STRICT, *includes, str(source)], check=True, cwd=tmp_path)
    for sketch in kit.directory.rglob("*.ino"):
        sketch = ["-include", "Arduino.h", "-x", "c++", str(sketch)]
        subprocess.run([*cplusplus, "-std=gnu++11", *STRICT, *includes, *sketch], check=True, cwd=tmp_path)
    assert len(sources) == (1 if kit.board == "arduino" else 2)


def test_it_is_whole(kit):
    there = {
        file.relative_to(kit.directory).as_posix() for file in kit.directory.rglob("*") if file.is_file()
    }
    assert there == set(kit.files)
    for name in kit.files:
        text = (kit.directory / name).read_text()
        assert not re.search(r"@\w+@", text)
        assert "written by bitfactor" in text
        for included in re.findall(r'"([\w/-]+\.[ch])"|src/([\w-]+\.c)', text):
            file = next(filter(None, included))
            assert any(one.endswith(file) for one in kit.files) or (STUBS / file).is_file()
    again = write_kit(load(file_of("digits")), kit.directory, kit.board)
    assert again.files == kit.files


def test_a_library_of_arduino_has_what_its_specification_asks_for(tmp_path):
    kit = write_kit(load(file_of("digits")), tmp_path / "my-digits", "arduino")
    lines = (kit.directory / "library.properties").read_text().splitlines()[1:]
    found = dict(line.split("=", 1) for line in lines)
    asked = "name version author maintainer sentence paragraph category url architectures includes"
    assert set(found) == set(asked.split())
    assert all(found.values())
    assert re.fullmatch(r"\d+\.\d+\.\d+", found["version"])
    assert found["includes"] == "my-digits.h"


def test_the_ram_of_its_example_is_said(tmp_path):
    kit = write_kit(load(file_of("digits")), tmp_path / "my-digits", "arduino")
    header = (kit.directory / "examples/Camera/camera_frame.h").read_text()
    height, width = (int(re.search(rf"FRAME_{side} (\d+)", header)[1]) for side in ("HEIGHT", "WIDTH"))
    more = 2 * height * width + 8 * 8 + 4 * 10
    for name in ("library.properties", "README.md"):
        text = (kit.directory / name).read_text()
        assert f"{kit.network.ram} bytes of RAM" in text
        assert f"The example takes {more} bytes of RAM more" in text


MAIN = """
#include <stdio.h>
#include "camera_frame.h"
int main(void)
{
    read_frame();
    while (fread(frame, sizeof frame, 1, stdin)) {
        const int32_t found = classify();
        fwrite(pixels, sizeof pixels, 1, stdout), fwrite(scores, sizeof scores, 1, stdout);
        fprintf(stderr, "%d %s\\n", (int)found, name_of(found));
    }
    return 0;
}
"""


def coloured(words):
    """Frames of RGB565 as bytes of red, green and blue."""
    red, green, blue = words >> 11, words >> 5 & 63, words & 31
    return np.stack([red << 3 | red >> 2, green << 2 | green >> 4, blue << 3 | blue >> 2], -1).astype(
        np.uint8
    )


FRAMES = [(96, 96, 0), (120, 160, 1), (20, 17, 0)]
COLOURED, GREY = "cifar10-resnet18", "digits"


@pytest.mark.parametrize(
    ("network", "height", "width", "high_first"),
    slow_beside(
        [(COLOURED, *FRAMES[0]), (COLOURED, *FRAMES[1]), (GREY, *FRAMES[2])],
        [(name, *frame) for name in (GREY, COLOURED) for frame in FRAMES],
    ),
)
def test_a_frame_gives_what_python_gives_for_it(network, height, width, high_first, tmp_path):
    model = load(file_of(network))
    kit = write_kit(model, tmp_path / "my-net", "pico")
    words = np.random.default_rng(0).integers(0, 1 << 16, (3, height, width), np.uint16)
    (tmp_path / "main.c").write_text(MAIN)
    defined = [f"-DFRAME_HEIGHT={height}", f"-DFRAME_WIDTH={width}", f"-DHIGH_BYTE_FIRST={high_first}"]
    sources = [str(tmp_path / "main.c"), str(kit.directory / "src/my-net.c")]
    includes = [f"-I{kit.directory / 'src'}", f"-I{kit.directory / 'examples/camera'}"]
    command = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-fsanitize=address,undefined"]
    subprocess.run([*command, *defined, *includes, *sources, "-o", str(tmp_path / "a")], check=True)
    given = words.astype(">u2" if high_first else "<u2").tobytes()
    done = subprocess.run([tmp_path / "a"], input=given, capture_output=True, check=True)

    channels = len(model.input_spec.mean)
    pixels = np.stack([resized(with_channels(one, channels), model.input_spec) for one in coloured(words)])
    pixels = pixels.reshape(3, *model.input_spec.size, channels)
    graph = integer_graph(model.graph, model.input_spec)
    (scores,) = run(graph, pixels.transpose(0, 3, 1, 2).astype(np.int64) - 128)
    expected = b"".join(
        one.tobytes() + other.astype(np.int32).tobytes() for one, other in zip(pixels, scores, strict=True)
    )
    assert done.stdout == expected
    classes = scores.argmax(1)
    assert done.stderr.decode().splitlines() == [f"{one} {model.labels[one]}" for one in classes]


def test_without_labels_a_class_is_its_number(tmp_path):
    kit = write_kit(replace(load(file_of("digits")), labels=()), tmp_path / "net", "pico")
    command = [*COMPILERS["zig for a Cortex-M0+"][0], *STRICT, f"-I{STUBS}", f"-I{kit.directory / 'src'}"]
    source = kit.directory / "examples/camera/main.c"
    subprocess.run([*command, str(source)], check=True, cwd=tmp_path)


def test_a_file_of_ones_own_is_kept(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net/README.md").write_text("mine")
    with pytest.raises(InputError, match="expected a new file, or one that bitfactor wrote"):
        write_kit(load(file_of("digits")), tmp_path / "net", "zephyr")
    assert [file.name for file in (tmp_path / "net").iterdir()] == ["README.md"]


@pytest.mark.parametrize(
    ("network", "name", "limits", "said"),
    [
        ("lsp-hourglass", "pose", {}, "expected a network for images that gives classes"),
        ("digits", "Arduino", {}, "expected a name for the network"),
        ("digits", "ü", {}, "expected a directory whose name begins with a letter"),
        ("digits", "my digits", {}, "found 'my digits'"),
        ("digits", "digits.c", {}, "found 'digits.c'"),
        ("digits", "net", {"max_ram": 8000}, "expected RAM for the arena"),
    ],
)
def test_what_cannot_be_is_refused(network, name, limits, said, tmp_path):
    with pytest.raises(InputError, match=said):
        write_kit(load(file_of(network)), tmp_path / name, "arduino", **limits)
    assert not list(tmp_path.iterdir())


BOARDS = Path(__file__).parents[3] / "benchmarks" / "boards"
HOST = """
#include <cstdio>
#include "Arduino.h"
#include "boards.ino"
void Port::begin(unsigned long) {}
void Port::print(const char *text) { std::fputs(text, stdout); }
void Port::println(const char *text) { std::puts(text); }
void Port::println(unsigned long value) { std::printf("%lu\\n", value); }
Port Serial;
unsigned long micros(void) { static unsigned long now = 0; return now += 1500; }
void delay(unsigned long) {}
int main() { setup(), loop(); }
"""


TABLE = dict(re.findall(r"^\| ([\w-]+) \| (\d+) \|", (BOARDS / "README.md").read_text(), re.MULTILINE))


def test_the_table_of_boards_has_the_networks_that_fit_one():
    assert {*TABLE} == {name for name in SMALL if name.startswith(("cifar10-", "digits"))}


@pytest.mark.parametrize("network", TABLE)
def test_the_sketch_for_boards_prints_the_checksum_of_the_table(network, tmp_path):
    kit = write_kit(load(file_of(network)), tmp_path / "network", "arduino")
    (tmp_path / "main.cpp").write_text(HOST)
    (tmp_path / "Arduino.h").write_text((STUBS / "Arduino.h").read_text())
    source = kit.directory / "src" / "network.c"
    subprocess.run(["gcc", "-O1", "-c", str(source), "-o", str(tmp_path / "network.o")], check=True)
    command = ["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-DF_CPU=48000000L"]
    command += [f"-I{tmp_path}", f"-I{source.parent}", f"-I{BOARDS}"]
    objects = [str(tmp_path / "main.cpp"), str(tmp_path / "network.o")]
    subprocess.run([*command, *objects, "-o", str(tmp_path / "a")], check=True)
    done = subprocess.run([tmp_path / "a"], capture_output=True, text=True, check=True).stdout
    found = dict(line.split(" ", 1) for line in done.splitlines())
    assert found["checksum"] == TABLE[network]
    assert (found["clock_mhz"], found["cycles"], found["microseconds"]) == ("48", "72000", "1500")


def test_the_sketch_for_boards_asks_for_the_clock(tmp_path):
    (tmp_path / "network.h").touch()
    command = ["g++", "-E", "-x", "c++", f"-I{tmp_path}", str(BOARDS / "boards.ino")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "write #define F_CPU above, in Hz" in done.stderr
    subprocess.run([*command, "-DF_CPU=64000000L"], capture_output=True, check=True)
