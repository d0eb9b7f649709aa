"""The keys of this make-believe world: merchants', the platform's, and a forger's. Made once, kept in
keys.json (0600).

Whoever seeds a demo may call ``ensure_keys`` before the simulator runs; the first of the two makes them.
"""

from __future__ import annotations

import json
import os
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

WECHAT_ACCOUNTS = ("1900000101", "1900000102")
ALIPAY_ACCOUNTS = ("2088000000000101", "2088000000000102")


def ensure_keys(state: Path) -> dict[str, Any]:
    """Read ``state/keys.json``; make it first when it is missing. Two makers at once end with one file."""
    path = state / "keys.json"
    if not path.exists():
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = state / f".keys-{os.getpid()}-{secrets.token_hex(4)}.json"
        write_private(fresh, make_keys())
        try:
            os.link(fresh, path)  # fails when somebody else was first: theirs counts
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    keys = json.loads(path.read_text())
    if "root" not in keys["alipay"]:  # made before certificate mode was
        add_alipay_certificates(keys)
        save_keys(state, keys)
    return keys


def save_keys(state: Path, keys: dict[str, Any]) -> None:
    fresh = state / f".keys-{os.getpid()}-{secrets.token_hex(4)}.json"
    write_private(fresh, keys)
    fresh.replace(state / "keys.json")


def write_private(path: Path, keys: dict[str, Any]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(keys, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def make_keys() -> dict[str, Any]:
    keys: dict[str, Any] = {
        "version": 1,
        "wechat": {
            "platform": {"public_key_id": f"PUB_KEY_ID_0{secrets.randbelow(10**30):030d}", **pair()},
            "certificates": [make_certificate()],
            "accounts": [
                {
                    "mchid": mchid,
                    "app_id": f"wx{secrets.token_hex(8)}",
                    "serial": secrets.token_hex(20).upper(),
                    "api_v3_key": secrets.token_hex(16),
                    **pair(),
                }
                for mchid in WECHAT_ACCOUNTS
            ],
        },
        "alipay": {
            **pair(),
            "accounts": [
                {"seller_id": seller, "app_id": f"2021{secrets.randbelow(10**12):012d}", **pair()}
                for seller in ALIPAY_ACCOUNTS
            ],
        },
        "forger": pair(),
    }
    add_alipay_certificates(keys)
    return keys


def add_alipay_certificates(keys: dict[str, Any]) -> None:
    """Certificate mode: a root, an issuer below it, Alipay's certificate over its key, one per seller's application,
    and a root that nobody trusts for the forger."""
    alipay = keys["alipay"]
    alipay["root"] = make_authority("Make-believe Root")
    alipay["issuer"] = make_authority("Make-believe Class 2", issuer=alipay["root"])
    alipay["certificates"] = [make_leaf("Make-believe Alipay", alipay["private_key"], alipay["issuer"])]
    for account in alipay["accounts"]:
        made = make_leaf(f"Seller {account['seller_id']}", account["private_key"], alipay["issuer"])
        account["certificate"] = made["certificate"]
    keys["forger"]["root"] = make_authority("Make-believe Root")


def make_authority(name: str, *, issuer: dict[str, str] | None = None) -> dict[str, str]:
    """A certificate that issues others; without an issuer it is its own."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return signed(name, private_pem(key), issuer, authority=True)


def make_leaf(name: str, private_key: str, issuer: dict[str, str]) -> dict[str, str]:
    """A certificate over a key, with its issuer's behind it in one bundle."""
    return signed(name, private_key, issuer, authority=False)


def signed(name: str, private_key: str, issuer: dict[str, str] | None, *, authority: bool) -> dict[str, str]:
    key = serialization.load_pem_private_key(private_key.encode(), None)
    above = x509.load_pem_x509_certificate(issuer["certificate"].encode()).subject if issuer else named(name)
    signer = serialization.load_pem_private_key((issuer or {"private_key": private_key})["private_key"].encode(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    assert isinstance(signer, rsa.RSAPrivateKey)
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(above)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=5 * 365))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    behind = issuer["certificate"] if issuer and not authority else ""
    return {"certificate": pem + behind, "private_key": private_key}


def named(name: str) -> x509.Name:
    parts = {
        NameOID.COUNTRY_NAME: "CN",
        NameOID.ORGANIZATION_NAME: "Quits",
        NameOID.ORGANIZATIONAL_UNIT_NAME: "Certification Authority",
        NameOID.COMMON_NAME: name,
    }
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in parts.items()])


def pair() -> dict[str, str]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return {"private_key": private_pem(key), "public_key": public_pem(key.public_key())}


def make_certificate() -> dict[str, str]:
    """A platform certificate, self-signed, good for five years."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Quits channel simulator")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(int(secrets.token_hex(19), 16) | 1 << 151)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=5 * 365))
        .sign(key, hashes.SHA256())
    )
    return {
        "serial": f"{certificate.serial_number:X}",
        "certificate": certificate.public_bytes(serialization.Encoding.PEM).decode(),
        "private_key": private_pem(key),
    }


def private_pem(key: rsa.RSAPrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def public_pem(key: rsa.RSAPublicKey) -> str:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()


def wechat_account(keys: dict[str, Any], number: int, base_url: str) -> dict[str, Any]:
    """What a ``ChannelAccount`` needs to speak to this simulator: mchid, app_id, settings, secrets."""
    account, platform = keys["wechat"]["accounts"][number], keys["wechat"]["platform"]
    certificate = keys["wechat"]["certificates"][-1]
    return {
        "channel": "wechat",
        "mchid": account["mchid"],
        "app_id": account["app_id"],
        "settings": {
            "base_url": base_url,
            "merchant_serial": account["serial"],
            "public_key_id": platform["public_key_id"],
            "platform_serials": [platform["public_key_id"], certificate["serial"]],
            "platform_keys": [
                {"id": platform["public_key_id"], "pem": platform["public_key"]},
                {"id": certificate["serial"], "pem": certificate["certificate"]},
            ],
        },
        "secrets": {"private_key": account["private_key"], "api_v3_key": account["api_v3_key"]},
    }


def alipay_certificate_settings(keys: dict[str, Any], number: int) -> dict[str, Any]:
    """What an Alipay account's settings need besides for certificate mode."""
    return {
        "alipay_public_keys": [],
        "app_certificate": keys["alipay"]["accounts"][number]["certificate"],
        "alipay_certificates": [keys["alipay"]["certificates"][0]["certificate"]],
        "root_certificate": keys["alipay"]["root"]["certificate"],
    }


def alipay_account(keys: dict[str, Any], number: int, base_url: str) -> dict[str, Any]:
    account = keys["alipay"]["accounts"][number]
    return {
        "channel": "alipay",
        "mchid": account["seller_id"],
        "app_id": account["app_id"],
        "settings": {
            "gateway_url": f"{base_url}/gateway.do",
            "seller_id": account["seller_id"],
            "alipay_public_keys": [keys["alipay"]["public_key"]],
        },
        "secrets": {"app_private_key": account["private_key"]},
    }
