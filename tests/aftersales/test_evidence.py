"""Evidence: images by content, once, kept outside the web root."""

import struct
import zlib

import pytest

from aftersales.actors import By
from aftersales.commands.add_evidence import MAX_BYTES, EvidenceRefused, TooMuchEvidence, add_evidence
from aftersales.images import NotAnImage, path_of, read_image
from aftersales.models import Actor, Evidence
from kernel.errors import NotFound
from tests.aftersales.build import BUYER, a_key, nut_and_tea


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def a_png(width: int = 3, height: int = 2, tint: int = 0) -> bytes:
    raw = b"".join(b"\x00" + bytes([tint, 0, 0]) * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    b"\xff\xc0\x00\x11\x08\x00\x10\x00\x20\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"
    b"\xff\xda\x00\x0c\x03\x01\x00\x02\x11\x03\x11\x00\x3f\x00\x00\xff\xd9"
)
GIF = (
    b"GIF89a\x04\x00\x03\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x04\x00\x03\x00\x00\x02\x02D\x01\x00;"
)
WEBP = b"RIFF\x16\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x10\x00\x00\x00\x07\x00\x00\x05\x00\x00"


@pytest.mark.parametrize(
    ("content", "kind", "size"),
    [
        (a_png(), "image/png", (3, 2)),
        (JPEG, "image/jpeg", (32, 16)),
        (GIF, "image/gif", (4, 3)),
        (WEBP, "image/webp", (8, 6)),
    ],
    ids=["png", "jpeg", "gif", "webp"],
)
def test_an_image_is_what_its_bytes_say(content, kind, size):
    image = read_image(content)
    assert (image.content_type, (image.width, image.height)) == (kind, size)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<svg onload=alert(1)>",
        b"<html>",
        b"MZ\x90\x00",
        b"%PDF-1.7",
        a_png()[:-20],
        JPEG[:-2],
        GIF[:-1],
        WEBP[:-9],
        a_png(20_000, 1),
        b"\x89PNG\r\n\x1a\n" + b"\x00" * 40,
        b"\xff\xd8\xff\xe0",
    ],
)
def test_anything_else_is_none(content):
    with pytest.raises(NotAnImage):
        read_image(content)


@pytest.fixture
def shown(db, now, settings, tmp_path):
    settings.QUITS_VAR = tmp_path
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no

    def show(content: bytes, *, by: By = By(Actor.BUYER, BUYER), user_id: str | None = BUYER, key=None):  # noqa: B008
        return add_evidence(
            merchant_id=paid.merchant.pk,
            content=content,
            after_sales_no=number,
            user_id=user_id,
            by=by,
            key=key or a_key(paid.merchant.pk),
            now=now,
        )

    show.paid = paid
    return show


def test_it_is_kept_under_its_digest_outside_the_web_root(shown, settings):
    done = shown(a_png())
    path = path_of(done.sha256)
    assert path.read_bytes() == a_png()
    assert settings.STATIC_ROOT not in path.parents
    assert (done.content_type, done.width, done.height, done.size) == ("image/png", 3, 2, len(a_png()))


def test_the_same_image_of_the_same_party_is_one(shown):
    first, again = shown(a_png()), shown(a_png())
    assert first.evidence_id == again.evidence_id
    shown(a_png(), by=By(Actor.MERCHANT, "lin"), user_id=None)
    assert Evidence.objects.count() == 2


def test_what_is_no_image_or_too_large_is_refused(shown):
    for content in (b"<script>", a_png() + b"\x00" * MAX_BYTES):
        with pytest.raises(EvidenceRefused):
            shown(content)
    assert not Evidence.objects.exists()


def test_a_stranger_leaves_no_file(shown):
    picture = a_png(tint=77)
    with pytest.raises(NotFound):
        shown(picture, by=By(Actor.BUYER, "u-2"), user_id="u-2")
    assert not path_of(read_image(picture).sha256).exists()


def test_nobody_elses_claim(shown):
    with pytest.raises(NotFound):
        shown(a_png(), by=By(Actor.BUYER, "u-2"), user_id="u-2")
    assert not Evidence.objects.exists()


def test_a_party_has_a_limit(shown, monkeypatch):
    monkeypatch.setattr("aftersales.commands.add_evidence.MAX_PER_SIDE", 2)
    shown(a_png(tint=1))
    shown(a_png(tint=2))
    with pytest.raises(TooMuchEvidence):
        shown(a_png(tint=3))
    assert shown(a_png(tint=2)).sha256
