"""`Session.predict` says the same of a file, of its bytes as an upload gives them, and of Pillow's image."""

import io

import numpy as np
import pytest
from PIL import Image

from bitfactor.api.predict import sources_of, targets_of
from bitfactor.common.errors import InputError
from bitfactor.runtime import Session
from bitfactor.runtime.zoo import file_of

COLOURS = np.random.default_rng(0).integers(0, 256, (60, 40, 3), np.uint8)
PIXELS = {"digits": np.repeat(COLOURS[..., :1], 3, 2), "lsp-hourglass": COLOURS}


@pytest.fixture(params=PIXELS)
def pixels(request):
    return PIXELS[request.param]


@pytest.fixture
def session(request, pixels):
    return Session(file_of("lsp-hourglass" if pixels is COLOURS else "digits"), threads=1)


def stored(pixels, mode):
    image = Image.fromarray(pixels)
    if mode == "I;16":
        return Image.fromarray((pixels[..., 0].astype(np.uint16) << 8) | (255 - pixels[..., 0]))
    return image.convert(mode)


def answer(found):
    return getattr(found, "classes", None) or found.keypoints


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "LA", "1", "I;16"])
def test_a_file_its_bytes_and_an_image_of_pillow(session, pixels, mode, tmp_path):
    stored(pixels, mode).save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    expected = answer(session.predict(tmp_path / "a.png"))
    assert answer(session.predict(data)) == expected
    opened = answer(session.predict(Image.open(io.BytesIO(data))))
    for one, other in zip(opened, expected, strict=True):
        values = [vars(each) for each in (one, other)]
        assert all(values[0][name] == pytest.approx(values[1][name], abs=0.02) for name in values[1])


def test_16_bits_that_pillow_opens_as_32(session, pixels, tmp_path):
    grey = pixels.mean(2).astype(np.uint16) * 257
    header = b"P5 %d %d 65535\n" % grey.shape[::-1]
    (tmp_path / "a.pgm").write_bytes(header + grey.astype(">u2").tobytes())
    with Image.open(tmp_path / "a.pgm") as opened:
        assert opened.mode == "I"
        found = answer(session.predict(opened))
    for one, other in zip(found, answer(session.predict(tmp_path / "a.pgm")), strict=True):
        assert vars(one) == pytest.approx(vars(other), abs=0.02)


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_pillows_32_bits_have_no_scale(session, pixels, kind):
    with pytest.raises(InputError, match=r"expected an image of 8 or 16 bits, found one of mode [IF], of"):
        session.predict(Image.fromarray(pixels[..., 0].astype(kind)))


def test_a_photo_that_says_it_is_turned(session, pixels, tmp_path):
    exif = Image.Exif()
    exif[0x112] = 6
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    with Image.open(tmp_path / "a.png") as opened:
        turned = session.predict(np.rot90(pixels, -1).copy())
        assert answer(session.predict(opened)) == answer(turned)


def test_several_forms_at_once_and_bytes_of_no_image(session, pixels, tmp_path):
    Image.fromarray(pixels).save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    found = session.predict([data, tmp_path / "a.png", pixels])
    assert len({str(answer(one)) for one in found}) == 1
    assert found[0].image == f"{len(data)} bytes"
    with pytest.raises(InputError, match=r"5 bytes: expected an image .* found data that cannot be decoded"):
        session.predict(b"no im")


def test_no_samples_give_no_outputs_by_the_reference():
    for precision in ("highest", "integer"):
        session = Session(file_of("digits"), isa="reference", precision=precision)
        assert session(np.zeros((0, 1, 8, 8), np.float32)).shape == (0, 10)


def test_names_of_images_are_known_without_the_machines_list(tmp_path, monkeypatch):
    monkeypatch.setattr("mimetypes.guess_type", lambda name: (None, None))
    assert targets_of([tmp_path / "a.png"], tmp_path / "out.webp") == [tmp_path / "out.webp"]
    (tmp_path / "in").mkdir()
    for name in ("a.ppm", "b.png", "c.txt"):
        (tmp_path / "in" / name).touch()
    assert [one.name for one in sources_of([tmp_path / "in"])] == ["a.ppm", "b.png"]
