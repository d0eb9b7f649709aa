"""The signature scheme against vectors worked out by hand and by RFC 4231's HMAC-SHA-256."""

import hashlib
import hmac
import subprocess

import pytest

from merchants import signing


@pytest.mark.parametrize(
    ("key", "data", "digest"),
    [
        # RFC 4231, test cases 1, 2 and 3: what is underneath is HMAC-SHA-256 and nothing else.
        (b"\x0b" * 20, b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
        (b"Jefe", b"what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
        (b"\xaa" * 20, b"\xdd" * 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
    ],
)
def test_hmac_is_that_of_rfc_4231(key, data, digest):
    assert hmac.digest(key, data, "sha256").hex() == digest


VECTORS = [
    # (method, target, timestamp, nonce, body, text, signature); made with openssl, see the last test
    (
        "GET",
        "/api/v1/coupons?user_id=u-1&status=AVAILABLE",
        "1764475200",
        "0123456789abcdef",
        b"",
        "GET\n/api/v1/coupons?user_id=u-1&status=AVAILABLE\n1764475200\n0123456789abcdef\n"
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n",
    ),
    (
        "POST",
        "/api/v1/quotes",
        "1764475200",
        "fedcba9876543210",
        '{"user_id":"张三"}'.encode(),
        "POST\n/api/v1/quotes\n1764475200\nfedcba9876543210\n"
        + hashlib.sha256('{"user_id":"张三"}'.encode()).hexdigest()
        + "\n",
    ),
]
SECRET = "kq0nTn0G4p7sR2vY9cXw1uLmB3eD6hJ8fA5iO_zQ-tE"


@pytest.mark.parametrize(("method", "target", "timestamp", "nonce", "body", "text"), VECTORS)
def test_five_lines_are_signed(method, target, timestamp, nonce, body, text):
    made = signing.text_to_sign(method=method, target=target, timestamp=timestamp, nonce=nonce, body=body)

    assert made == text.encode()
    assert signing.fits(SECRET, made, signing.sign(SECRET, made))


@pytest.mark.parametrize(("method", "target", "timestamp", "nonce", "body", "text"), VECTORS)
def test_openssl_agrees(method, target, timestamp, nonce, body, text):
    digest = subprocess.run(
        ["openssl", "dgst", "-sha256", "-hmac", SECRET, "-binary"], input=text.encode(), capture_output=True, check=True
    ).stdout
    encoded = subprocess.run(["openssl", "base64", "-A"], input=digest, capture_output=True, check=True).stdout

    assert signing.sign(SECRET, text.encode()) == encoded.decode()


def test_header_is_read_back():
    header = signing.header(
        key_id="qk_1", secret=SECRET, method="GET", target="/x", timestamp=1764475200, nonce="n" * 16, body=b""
    )

    signed = signing.parse(header)

    assert signed is not None
    assert (signed.key_id, signed.timestamp, signed.nonce) == ("qk_1", 1764475200, "n" * 16)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer abc",
        'QUITS-HMAC-SHA256 key_id="a",timestamp="1",nonce="short",signature="' + "A" * 43 + '="',
        'QUITS-HMAC-SHA256 key_id="a",timestamp="１２",nonce="' + "n" * 16 + '",signature="' + "A" * 43 + '="',
        'QUITS-HMAC-SHA256 key_id="a",timestamp="-1",nonce="' + "n" * 16 + '",signature="' + "A" * 43 + '="',
        'QUITS-HMAC-SHA256 key_id="a",timestamp="1",nonce="' + "n" * 16 + '",signature="' + "A" * 43 + '="\n',
        'QUITS-HMAC-SHA256 key_id="a",timestamp="1",nonce="' + "n" * 16 + '",signature="abc"',
    ],
)
def test_anything_else_is_no_header_of_this_scheme(header):
    assert signing.parse(header) is None
