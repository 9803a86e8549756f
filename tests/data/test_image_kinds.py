"""Images of every kind are the same in predict, evaluate and training; bombs are refused before decoding."""

import io
import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image
from tests.cases import bytes_taken

from bitfactor.common.errors import InputError
from bitfactor.data import ImageFolder
from bitfactor.data.augment import input_spec
from bitfactor.data.readers.check import check_data, images_in
from bitfactor.data.readers.evaluation_set import Wanted
from bitfactor.pose.images import (
    MOST_PIXELS,
    decode_about,
    decode_image,
    exif_orientation,
    prepare,
    shrunk,
    stated_size,
)
from bitfactor.runtime.prediction import pixels_of

SPEC = input_spec(32, "paper")
WHOLE = np.repeat(np.repeat([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [250, 240, 0]]], 20, 0), 30, 1)
WHOLE = WHOLE.astype(np.uint8)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned(kind: str) -> bytes:
    """Stored a quarter to the left, with EXIF that says so."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(Image.fromarray(np.rot90(WHOLE).copy()), kind, exif=exif, quality=95)


def png(width: int, height: int, depth: int, colour: int, rows: bytes = b"") -> bytes:
    """A PNG that may say more than it holds."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def deep() -> bytes:
    """16 bits a channel."""
    rows = (WHOLE.astype(">u2") * 257).reshape(len(WHOLE), -1)
    return png(60, 40, 16, 2, b"".join(b"\0" + row.tobytes() for row in rows))


def transparent(mode: str) -> bytes:
    image = Image.fromarray(WHOLE).convert(mode)
    image.putalpha(Image.fromarray(np.tile(np.arange(60, dtype=np.uint8) * 4, (40, 1))))
    return encoded(image, "png")


PICTURE = Image.fromarray(WHOLE)
KINDS = {
    "plain.png": encoded(PICTURE, "png"),
    "turned.jpg": turned("jpeg"),
    "16bit.png": deep(),
    "cmyk.jpg": encoded(PICTURE.convert("CMYK"), "jpeg", quality=95),
    "palette.png": encoded(PICTURE.convert("P", palette=Image.Palette.ADAPTIVE), "png"),
    "palette.gif": encoded(PICTURE.convert("P", palette=Image.Palette.ADAPTIVE), "gif"),
    "alpha.png": transparent("RGB"),
    "alpha.webp": encoded(Image.open(io.BytesIO(transparent("RGB"))), "webp", lossless=True, exact=True),
    "plain.bmp": encoded(PICTURE, "bmp"),
    "plain.tiff": encoded(PICTURE, "tiff"),
}


@pytest.fixture
def folder(tmp_path):
    """Every kind, in both classes of both parts."""
    for part in ("train", "val"):
        for label in ("cat", "dog"):
            (tmp_path / part / label).mkdir(parents=True)
            for name, data in KINDS.items():
                (tmp_path / part / label / name).write_bytes(data)
    return tmp_path


@pytest.mark.parametrize("name", KINDS)
def test_pixels_are_the_same_for_all_who_ask(name, tmp_path):
    (tmp_path / name).write_bytes(KINDS[name])
    opened = Image.open(io.BytesIO(KINDS[name]))
    found = (
        pixels_of(tmp_path / name, 3),
        pixels_of(KINDS[name], 3),
        decode_image(KINDS[name], 3, name),
        decode_about(KINDS[name], 40, name),
        *([] if "16" in name else [pixels_of(opened, 3)]),
    )
    for pixels in found:
        assert pixels.shape == WHOLE.shape
        assert np.abs(pixels.astype(int) - WHOLE)[2:18, 2:28].mean() < 3
        assert np.abs(pixels.astype(int) - WHOLE)[22:, 32:].mean() < 3


def test_evaluation_and_training_see_them_alike(folder):
    expected = prepare(WHOLE, SPEC)
    found = images_in(folder, Wanted("net", ("cat", "dog"), SPEC))
    evaluated = np.concatenate([inputs for inputs, _ in found.batches()])
    assert len(evaluated) == 2 * len(KINDS)
    data = ImageFolder.load(folder, size=32, workers=0, crop=False, mirror=False, preset="paper")
    trained = np.concatenate([x.numpy() for x, _ in data.train_batches(4, seed=0, epoch=0)])
    tested = np.concatenate([x.numpy() for x, _ in data.test_batches(4)])
    for inputs in (evaluated, trained, tested):
        assert np.abs(inputs - expected).mean(axis=(1, 2, 3)).max() < 0.2


def webp(kind: bytes, body: bytes) -> bytes:
    content = b"WEBP" + kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(content)) + content


SIDE = 30000
BOMBS = {
    "png": png(SIDE, SIDE, 8, 2),
    "jpg": b"\xff\xd8garbage\xff\xc0\0\x11\x08" + struct.pack(">HH", SIDE, SIDE) + b"\x03" + bytes(40),
    "gif": b"GIF89a" + struct.pack("<HH", SIDE, SIDE) + bytes(40),
    "bmp": b"BM" + bytes(12) + struct.pack("<Iii", 40, SIDE, -SIDE) + bytes(40),
    "old.bmp": b"BM" + bytes(12) + struct.pack("<IHH", 12, SIDE, SIDE) + bytes(40),
    "tiff": b"II*\0\x08\0\0\0\x02\0" + struct.pack("<HHIIHHII", 256, 4, 1, SIDE, 257, 4, 1, SIDE),
    "x.webp": webp(b"VP8X", bytes(4) + 2 * (SIDE - 1).to_bytes(3, "little")),
}
SMALLER = {  # WebP's own forms end at 16,384 a side, which is just too many pixels
    "l.webp": webp(b"VP8L", b"\x2f" + struct.pack("<I", 0x0FFFFFFF)),
    ".webp": webp(b"VP8 ", bytes(6) + struct.pack("<HH", 16383, 16383)),
}


@pytest.mark.parametrize("suffix", BOMBS)
def test_bombs_are_refused_with_the_limit(suffix, tmp_path):
    path = tmp_path / f"bomb.{suffix}"
    path.write_bytes(BOMBS[suffix])
    message = rf"expected at most {MOST_PIXELS:,} pixels, found {SIDE} x {SIDE}; resize it"
    for call in (
        lambda: pixels_of(path, 3),
        lambda: pixels_of(BOMBS[suffix], 3),
        lambda: decode_about(BOMBS[suffix], 32, "image"),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_sizes_that_webp_states_itself():
    assert stated_size(SMALLER["l.webp"]) == (16384, 16384)
    assert stated_size(SMALLER[".webp"]) == (16383, 16383)


@pytest.mark.parametrize("name", KINDS)
def test_the_size_is_known_before_decoding(name):
    height, width = stated_size(KINDS[name])
    assert (height, width) == ((60, 40) if name == "turned.jpg" else (40, 60))


@pytest.mark.parametrize("name", KINDS)
def test_half_a_file_is_one_error(name):
    for size in range(0, len(KINDS[name]), 7):
        assert stated_size(KINDS[name][:size]) in ((0, 0), stated_size(KINDS[name]))
        with suppress(InputError):
            decode_image(KINDS[name][:size], 3, name)


def test_a_bomb_in_a_data_set_is_reported(folder):
    (folder / "train" / "cat" / "bomb.png").write_bytes(BOMBS["png"])
    (folder / "val" / "cat" / "bomb.png").write_bytes(BOMBS["png"])
    assert "at most" in str(check_data(folder).problems)
    data = ImageFolder.load(folder, size=32, workers=0, max_corrupt=1.0)
    with pytest.warns(UserWarning, match="bomb.png: expected at most"):
        assert sum(len(x) for x, _ in data.test_batches(4)) == 2 * len(KINDS)


DECODE = """
try:
    decode_image(small, 3, "bomb")
except ValueError:
    pass
"""


def test_nothing_is_allocated_for_a_bomb():
    after = "import sys\nfrom bitfactor.pose.images import decode_image\nsmall = sys.stdin.buffer.read()"
    assert bytes_taken(DECODE, after=after, given=BOMBS["png"]) < 10_000_000


def test_what_pillow_finds_late_is_an_error_too():
    opened = Image.open(io.BytesIO(KINDS["cmyk.jpg"][:-100]))
    with pytest.raises(InputError, match="Pillow"):
        pixels_of(opened, 3)


@pytest.mark.parametrize("length", [1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
def test_a_png_whose_chunk_says_that_it_is_gigabytes(length):
    """OpenCV would allocate them for a file of some hundred bytes."""
    data = encoded(Image.fromarray(WHOLE), "png")
    begin = len(data) - data[::-1].index(b"TADI") - 8
    with pytest.raises(InputError, match=r"expected a whole PNG, found \d+ bytes of more"):
        decode_image(data[:begin] + struct.pack(">I", length) + data[begin + 4 :], 3, "a file")


def test_a_png_with_something_behind_it():
    data = encoded(Image.fromarray(WHOLE), "png")
    np.testing.assert_array_equal(decode_image(data + b"more", 3, "a file"), WHOLE)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("turn", [1, 3, 6, 8])
def test_the_turn_that_exif_tells_is_known_of_each_kind(kind, turn):
    exif = Image.Exif()
    exif[0x0112] = turn
    data = encoded(Image.fromarray(WHOLE), kind, exif=exif)
    assert exif_orientation(data) == turn
    assert exif_orientation(data[:40]) in (1, turn)  # cut off


def test_an_image_one_pixel_wide_is_shrunk():
    assert shrunk(np.zeros((200, 1, 3), np.uint8), 108).shape == (108, 1, 3)
    assert shrunk(np.zeros((1, 200, 3), np.uint8), 108).shape == (1, 108, 3)
