"""RSA and AES-GCM for the simulator, straight from ``cryptography``: not the code that the drivers use."""

from __future__ import annotations

from base64 import b64decode, b64encode
from functools import lru_cache
from hashlib import md5

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate


@lru_cache(maxsize=64)
def private_key(pem: str) -> RSAPrivateKey:
    key = load_pem_private_key(pem.encode(), None)
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("not an RSA key")
    return key


@lru_cache(maxsize=64)
def public_key(pem: str) -> RSAPublicKey:
    key = load_pem_public_key(pem.encode())
    if not isinstance(key, RSAPublicKey):
        raise ValueError("not an RSA key")
    return key


def sign(pem: str, message: bytes) -> str:
    return b64encode(private_key(pem).sign(message, padding.PKCS1v15(), hashes.SHA256())).decode()


def fits(pem: str, message: bytes, signature: str) -> bool:
    try:
        public_key(pem).verify(b64decode(signature, validate=True), message, padding.PKCS1v15(), hashes.SHA256())
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=64)
def certificate_sn(bundle: str) -> str:
    """How Alipay names the first certificate of a bundle."""
    first = load_pem_x509_certificate(bundle.encode())
    text = f"{first.issuer.rfc4514_string()}{first.serial_number}"
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def seal(key: str, nonce: str, text: str, associated_data: str) -> str:
    return b64encode(AESGCM(key.encode()).encrypt(nonce.encode(), text.encode(), associated_data.encode())).decode()


def open_oaep(pem: str, ciphertext: str) -> str:
    """Decrypt a field that a merchant encrypted for the platform."""
    oaep = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)
    return private_key(pem).decrypt(b64decode(ciphertext, validate=True), oaep).decode()
