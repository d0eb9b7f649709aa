"""Signing and verifying for Alipay (RSA2), over ``cryptography`` alone.

``python-alipay-sdk`` was tried and left out of the path: it finds the signed text of an answer by counting
braces (one inside a string breaks it), raises on a signature that is no base64, sends contents in the URL,
stamps requests with the machine's zone instead of China's, and brings two more cryptography libraries. What
is left of it would be four lines.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

MAX_MEMBERS = 16


class Malformed(Exception):
    """Not the shape that Alipay documents."""


def load_public_key(pem: str) -> RSAPublicKey:
    """Alipay's console gives bare base64; PEM is taken too."""
    text = pem.strip()
    if not text.startswith("-----BEGIN"):
        text = f"-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n"
    key = load_pem_public_key(text.encode())
    if not isinstance(key, RSAPublicKey):
        raise ValueError("not an RSA public key")
    return key


def sorted_text(fields: Mapping[str, str]) -> str:
    """``a=1&b=2`` in the order of the names: what RSA2 signs."""
    return "&".join(f"{name}={fields[name]}" for name in sorted(fields))


def sign(key: RSAPrivateKey, text: str) -> str:
    return b64encode(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())).decode()


def fits(keys: Sequence[RSAPublicKey], text: bytes, signature: str) -> bool:
    """Whether any of Alipay's keys that we know made this signature: over a rotation there are two."""
    try:
        raw = b64decode(signature, validate=True)
    except ValueError:
        return False
    for key in keys:
        try:
            key.verify(raw, text, padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            continue
        return True
    return False


def members(text: str) -> dict[str, tuple[Any, str]]:
    """The members of a JSON object with the exact text of each value: the signature is over that text, not
    over what it means. A member twice, or anything after the object, is ``Malformed``."""
    decoder = json.JSONDecoder()
    found: dict[str, tuple[Any, str]] = {}
    try:
        at = _after_blank(text, _expect(text, _after_blank(text, 0), "{"))
        while True:
            name, at = decoder.raw_decode(text, at)
            at = _after_blank(text, _expect(text, _after_blank(text, at), ":"))
            value, end = decoder.raw_decode(text, at)
            if not isinstance(name, str) or name in found or len(found) >= MAX_MEMBERS:
                raise Malformed("a member twice, or too many")
            found[name] = (value, text[at:end])
            at = _after_blank(text, end)
            if text[at : at + 1] != ",":
                break
            at = _after_blank(text, at + 1)
        if _after_blank(text, _expect(text, at, "}")) != len(text):
            raise Malformed("something follows the answer")
    except (ValueError, RecursionError) as error:
        raise Malformed("not the JSON of an answer") from error
    return found


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        raise Malformed(f"{character} expected")
    return at + 1


def _after_blank(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\r", "\n") and at < len(text):
        at += 1
    return at


def form_fields(body: bytes) -> dict[str, str]:
    """The fields of a notify, decoded by the charset it names. A field twice is ``Malformed``."""
    try:
        raw = body.decode("ascii")
        charset = dict(parse_qsl(raw, keep_blank_values=True)).get("charset", "utf-8")
        if charset.lower() not in ("utf-8", "gbk", "gb2312"):
            raise Malformed("a charset we do not know")
        pairs = parse_qsl(
            raw, keep_blank_values=True, strict_parsing=True, encoding=charset, errors="strict", max_num_fields=100
        )
    except ValueError as error:
        raise Malformed("not a form") from error
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Malformed("a field twice")
    return fields
