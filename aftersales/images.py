"""Images as evidence: what they are is read from their bytes, and they are kept as files named by their digest.

No image library decodes them: structure and size are read from the format's own headers, and the bytes are never
interpreted on the server again. They are served with the content type found here and nothing else.
"""

import hashlib
import os
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

MAX_SIDE = 16_384
JPEG_SIZES = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}


class NotAnImage(ValueError):
    """The bytes are none of the formats that are taken, or are cut off."""


@dataclass(frozen=True, slots=True)
class Image:
    content_type: str
    width: int
    height: int
    sha256: str


def read_image(content: bytes) -> Image:
    """Judge an image by its content. Raises NotAnImage."""
    for kind, read in (("png", _png), ("jpeg", _jpeg), ("gif", _gif), ("webp", _webp)):
        try:
            size = read(content)
        except (struct.error, IndexError) as error:
            raise NotAnImage(f"{kind} that is cut off") from error
        if size is not None:
            width, height = size
            if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
                raise NotAnImage(f"{kind} of {width} × {height}")
            return Image(f"image/{kind}", width, height, hashlib.sha256(content).hexdigest())
    raise NotAnImage("no image")


def _png(content: bytes) -> tuple[int, int] | None:
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    if content[12:16] != b"IHDR" or b"IEND" not in content[-16:]:
        raise NotAnImage("png without its chunks")
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def _jpeg(content: bytes) -> tuple[int, int] | None:
    if not content.startswith(b"\xff\xd8\xff"):
        return None
    if b"\xff\xd9" not in content[-64:]:
        raise NotAnImage("jpeg that is cut off")
    at = 2
    while at < len(content) - 9:
        if content[at] != 0xFF:
            raise NotAnImage("jpeg with a broken marker")
        marker = content[at + 1]
        if marker == 0xFF or marker == 0x01 or 0xD0 <= marker <= 0xD8:
            at += 1 if marker == 0xFF else 2
            continue
        (length,) = struct.unpack(">H", content[at + 2 : at + 4])
        if marker in JPEG_SIZES:
            height, width = struct.unpack(">HH", content[at + 5 : at + 9])
            return width, height
        at += 2 + length
    raise NotAnImage("jpeg without a size")


def _gif(content: bytes) -> tuple[int, int] | None:
    if content[:6] not in (b"GIF87a", b"GIF89a"):
        return None
    if not content.rstrip(b"\x00").endswith(b";"):
        raise NotAnImage("gif that is cut off")
    width, height = struct.unpack("<HH", content[6:10])
    return width, height


def _webp(content: bytes) -> tuple[int, int] | None:
    if content[:4] != b"RIFF" or content[8:12] != b"WEBP":
        return None
    (length,) = struct.unpack("<I", content[4:8])
    if length + 8 > len(content):
        raise NotAnImage("webp that is cut off")
    kind = content[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(content[24:27], "little"), 1 + int.from_bytes(content[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(content[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", content[26:30])
        return width & 0x3FFF, height & 0x3FFF
    raise NotAnImage("webp of an unknown kind")


def path_of(sha256: str) -> Path:
    """Where an image lies: below the var directory, which no web server serves."""
    return Path(settings.QUITS_VAR) / "evidence" / sha256[:2] / sha256


def keep(content: bytes, sha256: str) -> Path:
    """Write an image whole or not at all. The same bytes are the same file."""
    path = path_of(sha256)
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(name, path)
    return path
