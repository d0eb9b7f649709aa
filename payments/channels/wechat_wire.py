"""Signing, verifying and decrypting for WeChat Pay API v3.

The four primitives come from ``wechatpayv3.utils``; its client does not, because it verifies only 2xx
answers, knows no freshness, fetches certificates for any unknown serial (an amplifier for whoever posts
garbage), raises bare ``Exception``, re-serialises the body it signed, reads the clock itself and has no
default timeout. Keys are loaded with ``cryptography``, which takes PKCS#1 and PKCS#8 alike.
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from wechatpayv3.utils import aes_decrypt, rsa_encrypt, rsa_sign, rsa_verify

SCHEME = "WECHATPAY2-SHA256-RSA2048"
FRESH_SECONDS = 300
PROBE_PREFIX = "WECHATPAY/SIGNTEST/"
"""WeChat Pay sends probes with such signatures to see whether a merchant verifies at all: they must fail."""

HEX_SERIAL = re.compile(r"[0-9A-Fa-f]{1,64}", re.ASCII)


class BadSignature(Exception):
    """``kind`` is unsigned, forged or stale."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Undecryptable(Exception):
    """A resource that is not what the signer's partner would have sent."""


@dataclass(frozen=True)
class VerifyingKey:
    """A key of the platform. ``key_id`` is ``PUB_KEY_ID_…`` or a certificate's serial in upper-case hex."""

    key_id: str
    public_key: RSAPublicKey
    valid_until: datetime | None = None


def load_private_key(pem: str) -> RSAPrivateKey:
    key = load_pem_private_key(pem.encode(), password=None)
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("not an RSA private key")
    return key


def load_verifying_key(key_id: str, pem: str) -> VerifyingKey:
    """A public key or a certificate in PEM, under the id that the platform will name it by."""
    if "BEGIN CERTIFICATE" in pem:
        return certificate_key(pem)
    key = load_pem_public_key(pem.encode())
    if not isinstance(key, RSAPublicKey):
        raise ValueError("not an RSA public key")
    return VerifyingKey(normal_key_id(key_id), key)


def certificate_key(pem: str) -> VerifyingKey:
    certificate = x509.load_pem_x509_certificate(pem.encode())
    key = certificate.public_key()
    if not isinstance(key, RSAPublicKey):
        raise ValueError("not an RSA certificate")
    return VerifyingKey(f"{certificate.serial_number:X}", key, certificate.not_valid_after_utc)


def normal_key_id(key_id: str) -> str:
    """Hex serials compare without case and leading zeros; public key ids as they are."""
    if HEX_SERIAL.fullmatch(key_id):
        return f"{int(key_id, 16):X}"
    return key_id


def new_nonce() -> str:
    return secrets.token_hex(16).upper()


@dataclass(frozen=True)
class Signer:
    """The merchant's side: signs requests and mini-program parameters."""

    mchid: str
    serial: str
    private_key: RSAPrivateKey

    def authorization(self, *, method: str, target: str, body: bytes, timestamp: int, nonce: str) -> str:
        text = f"{method}\n{target}\n{timestamp}\n{nonce}\n{body.decode()}\n"
        signature = rsa_sign(self.private_key, text)
        return (
            f'{SCHEME} mchid="{self.mchid}",nonce_str="{nonce}",signature="{signature}",'
            f'timestamp="{timestamp}",serial_no="{self.serial}"'
        )

    def pay_sign(self, *, app_id: str, timestamp: int, nonce: str, package: str) -> str:
        """The signature ``wx.requestPayment`` wants, over app id, time, nonce and ``prepay_id=…``."""
        return rsa_sign(self.private_key, f"{app_id}\n{timestamp}\n{nonce}\n{package}\n")


@dataclass(frozen=True)
class Verifier:
    """The platform's side as we know it: several keys at once, since a switch-over mixes them."""

    keys: Mapping[str, VerifyingKey]

    @classmethod
    def of(cls, keys: Iterable[VerifyingKey]) -> Verifier:
        return cls({key.key_id: key for key in keys})

    def verify(self, headers: Mapping[str, str], body: bytes, *, now: datetime) -> str:
        """Check signature, key and freshness of an answer or a notify; return the id of the key.

        ``headers`` have lower-case names. Raises ``BadSignature``: nothing in ``body`` may be believed then.
        """
        signature = headers.get("wechatpay-signature", "")
        timestamp = headers.get("wechatpay-timestamp", "")
        nonce = headers.get("wechatpay-nonce", "")
        serial = headers.get("wechatpay-serial", "")
        if not (signature and timestamp and nonce and serial):
            raise BadSignature("unsigned", "signature headers are missing")
        if headers.get("wechatpay-signature-type", SCHEME) != SCHEME:
            raise BadSignature("forged", "an algorithm we do not speak")
        if signature.startswith(PROBE_PREFIX):
            raise BadSignature("forged", "a signature probe")
        key = self.keys.get(normal_key_id(serial))
        if key is None:
            raise BadSignature("forged", "an unknown key")
        if key.valid_until is not None and now > key.valid_until:
            raise BadSignature("forged", "an expired certificate")
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
            raise BadSignature("forged", "no timestamp")
        if not self._fits(key, timestamp, nonce, body, signature):
            raise BadSignature("forged", "the signature does not fit")
        if abs(now.timestamp() - int(timestamp)) > FRESH_SECONDS:
            raise BadSignature("stale", f"signed {now.timestamp() - int(timestamp):.0f} s ago")
        return key.key_id

    @staticmethod
    def _fits(key: VerifyingKey, timestamp: str, nonce: str, body: bytes, signature: str) -> bool:
        try:
            b64decode(signature, validate=True)  # the library's own decoding is lenient
            return rsa_verify(timestamp, nonce, body.decode(), signature, key.public_key)
        except ValueError:
            return False


def decrypt_resource(resource: Mapping[str, object], api_v3_key: str) -> str:
    """Plaintext of ``{algorithm, ciphertext, nonce, associated_data}``. Raises ``Undecryptable``."""
    if resource.get("algorithm") != "AEAD_AES_256_GCM":
        raise Undecryptable("an algorithm we do not speak")
    ciphertext, nonce = resource.get("ciphertext"), resource.get("nonce")
    associated = resource.get("associated_data") or ""
    if not (isinstance(ciphertext, str) and isinstance(nonce, str) and isinstance(associated, str)):
        raise Undecryptable("parts are missing")
    return decrypt(api_v3_key, nonce, ciphertext, associated)


def decrypt(api_v3_key: str, nonce: str, ciphertext: str, associated_data: str) -> str:
    try:
        plain = aes_decrypt(nonce, ciphertext, associated_data, api_v3_key)
    except ValueError as error:
        raise Undecryptable("not base64, or no text inside") from error
    if plain is None:
        raise Undecryptable("it was not made with our API v3 key")
    return plain


def encrypt_for_platform(text: str, key: VerifyingKey) -> str:
    """RSA-OAEP for fields such as a bank card number."""
    return rsa_encrypt(text, key.public_key)


def same(left: str, right: str) -> bool:
    return hmac.compare_digest(left.encode(), right.encode())


def wall_clock() -> datetime:
    """The machine's clock: what signatures are stamped with and answers' freshness is judged by."""
    return datetime.now(UTC)
