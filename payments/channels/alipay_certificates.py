"""Alipay's certificate mode: a key counts when its certificate leads to the root certificate that we hold.

Certificates are named by ``sn``, the MD5 of issuer and serial number: Alipay's own naming, no proof of anything. What
proves is the chain: names and signatures up to the root, each certificate within its time.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
RSA_SIGNED = "1.2.840.113549.1.1."
MOST = 10
"""Certificates of one bundle; the real ones have two and four."""


class Untrusted(Exception):
    """No chain leads from this certificate to the root."""


@dataclass(frozen=True)
class Trusted:
    """A certificate below the root, by its name."""

    sn: str
    key: RSAPublicKey


def read(bundle: str) -> list[x509.Certificate]:
    """The certificates of a PEM bundle in their order; those of a kind that cannot be read (SM2) are left out."""
    found = []
    for block in PEM.findall(bundle)[:MOST]:
        try:
            found.append(x509.load_pem_x509_certificate(block.encode()))
        except ValueError:
            continue
    return found


def sn_of(certificate: x509.Certificate) -> str:
    """How Alipay names a certificate: MD5 over issuer and serial number."""
    named = f"{certificate.issuer.rfc4514_string()}{certificate.serial_number}"
    return hashlib.md5(named.encode(), usedforsecurity=False).hexdigest()


def own_sn(bundle: str) -> str:
    """The name of our application's certificate. Raises ValueError when there is none."""
    found = read(bundle)
    if not found:
        raise ValueError("no certificate of the application")
    return sn_of(found[0])


def root_sn(bundle: str) -> str:
    """The name of the root bundle: those of its RSA certificates, joined. Raises ValueError when there is none."""
    found = [each for each in read(bundle) if each.signature_algorithm_oid.dotted_string.startswith(RSA_SIGNED)]
    if not found:
        raise ValueError("no RSA certificate in the root bundle")
    return "_".join(sn_of(each) for each in found)


def trusted(bundle: str, *, root: str, at: datetime) -> Trusted:
    """The first certificate of a bundle, once the others lead it to the root. Raises Untrusted."""
    chain, roots = read(bundle), read(root)
    if not chain:
        raise Untrusted("no certificate")
    leaf, current = chain[0], chain[0]
    for _step in range(MOST):
        if not current.not_valid_before_utc <= at <= current.not_valid_after_utc:
            raise Untrusted("outside its time")
        if current in roots:
            break
        issuer = next((each for each in (*roots, *chain[1:]) if _issued(current, each)), None)
        if issuer is None or issuer == current:
            raise Untrusted("no way to the root")
        current = issuer
    else:
        raise Untrusted("too long a chain")
    key = leaf.public_key()
    if leaf in roots or not isinstance(key, RSAPublicKey):
        raise Untrusted("not a certificate that signs answers")
    return Trusted(sn_of(leaf), key)


def _issued(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        basics = by.extensions.get_extension_for_class(x509.BasicConstraints).value
        if not basics.ca:
            return False
        certificate.verify_directly_issued_by(by)
    except (x509.ExtensionNotFound, InvalidSignature, ValueError, TypeError):
        return False
    return True
