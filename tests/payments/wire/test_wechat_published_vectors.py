"""Signing, verifying and decrypting against what WeChat Pay and NIST published, for the driver and for the
simulator.

Sources
    docs   https://pay.weixin.qq.com/doc/v3/merchant/4012365334 (signature of a request without a body), and
    the page
           "小程序调起支付签名" of the same documentation (paySign): both give this test key and the expected
           signatures
    go     https://github.com/wechatpay-apiv3/wechatpay-go: core/auth/signers/sha256withrsa_signer_test.go,
           core/auth/verifiers/sha256withrsa_verifier_test.go, core/notify/notify_test.go
    java   https://github.com/wechatpay-apiv3/wechatpay-java: core/…/cipher/AeadAesCipherTest.java
    nist   The Galois/Counter Mode of Operation (McGrew, Viega), test case 16; as in NIST's CAVP
    gcmEncryptExtIV256
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from payments.channels import wechat_wire
from payments.channels.wechat_wire import BadSignature, Signer, Undecryptable, Verifier
from payments.simulator import crypto

DOCS_KEY = """-----BEGIN RSA PRIVATE KEY-----
MIIEogIBAAKCAQEAptpm+qvIDCh/9wjU26SQCK26ogYkBhDrYxnAaw2JbbBsp1oD
bHKk+1r381NeBUG2HEFAuU+Fr72u5ot3yKdzoF/FajAzQNKnm569/D3upKoi8mYB
aST15Uig8j8qoUW1U217LL0jEHlSnHV3lcaDTXqDpTRR4Bfz9IqOgJgFZ8/oTfEo
mSrjrLYef81Eyxr7ZIMQXEKKEK7V4UXKS0+/fDsiG/cXidhzt8UbTL9vqXqxM2+I
DImyO+FAc/tkBG55LmzxPto1Nq0WbnZzRM/wTzrd0I/8NlevxtFbphg4evlHjFNI
7+GrqR87ViEwuAJJ9Je5QQjct5YJfFRWiZ5CMQIDAQABAoIBAGBi/GhEgezcHIg1
ltlHaFlLGuxsRbUnYwM9phVxnXk7GJlYe2/TjpERjPkIqOC6hBwwadZjJORP3FCc
Mtc8PKRhjuZ377O7vU0915x2nnyLOGL1IE2AJ3iLi0ZFzTea0FPgg+5lWHM00s9F
YI6qPcGtS41M+xtMWwZiYE3TBBRibHiY8ugGyaNAhiMKehyW05uApjlIF55wwCGx
BkyESJpGRR/6853iHke6Ge+xVcMa9QmQdoH0QqL/8kT28PL568mJJr0Ow/83t4+d
Pe70YPzKAxgUnaDsHJqO+b8qH69AEs8rTI5h2Mon6pH+bJT66KUoiXhn+Kf+4LSs
henRP10CgYEA1QJSfuFOWVRjrg3N/rAIc/Ak84BTZavbyrkqBSuoTs9i/nMI/hOz
VxpDntg7Bx2Tctl6sZO3GioTxKdc/YYaTKci1TKBbeginpsqEQVgwkMCy8HpvUmR
fyAMqLwZC4h9+j+NiZtuoFJDTCgv+WYbasX+kWYEUM21bnSYuO7yEQsCgYEAyIdP
r9uzqPgzN34Tmx+CNTa16VjhBh+zkBtXRLDLhWBeIYxoYNJARD98Pb1XZdvpkZZW
Sk7MfaKo2/DomzyyyB/MbHWwAdFi3yb4y7uMJfyC1MzdUSNN3Vp579hJxHkJ+nN4
Ys76yfcEeVOLnvUT1Z0KKCdIWRdT1Lgi+X1itzMCgYBJUXlPzwGG4fNFj97d0X23
Wmt9nSgXkOYgi0eZbAOMzPmIF9R6kBFk49dur4Lx2g5Ms+r1gKC/0sfnIqxxX11i
EQ1+UNoYGJUB/uql3TIG68XkmKR50P7RwRhaZBRC0gJ6xrFTMjsL2ATuC88niyvY
vrn3FiRaI9RVZrDCxwxvLQKBgEXW4okEAqGBuAzGqztmkOnJoTehDdYdKmOxMgap
cGiGdKJIjX3THDDoz3ONQyglnEZpTqpYoV3MTfU0BT8zt6x9bqwDnQY1D7NalmIW
cqw0Mri8lQQSQKcsQLWo5aA466G/n5kCL1Qx5OwAjesRvhOyuvvbGpZ0ymyWqQ+t
fLkDAoGATcul1L8y5D/wNVP1GXbXMZfBsFP3bbqy8c+Ashm6g8OLm2mGNntd5Z6h
1KkID7Yksh+dZ6t7XaPBtGACXX5Eryr537JVvdX8hAVCp5HVtaN/9VBVP8Ka2e4s
VS/xeNgOMQ7uzhRPBJ8HiTmdI1nHhDnYQpGiBgQn0Z5RAkSvFMk=
-----END RSA PRIVATE KEY-----
"""
DOCS_MCHID, DOCS_SERIAL = "1900007291", "408B07E79B8269FEC3D5D3E6AB8ED163A6A380DB"
DOCS_TIME, DOCS_NONCE = 1554208460, "593BEC0C930BF1AFEB40B4A08C8FB242"
DOCS_GET_SIGNATURE = (
    "Lc9VXxmeonkdV8Xk9tmigQFLhl0vRWTerdmoRu01aAnYwIrD/5nsSwE1WlmZGLRlAFTNQ3QsMa0+VRDlJp1Wp5p0nO8EK68b"
    "5sJBbjouxaFciIfq1zfDWWz+jqhcMoKXI1A6dPm1AW7D4d30WsMTNzp6g23OXakIsh9LO3lUmwvTuE0BY8ncf6tNGk4wKmvX"
    "wERd/ZpoQY3MAVKz+Nakwc+2XBmzT66KcUehU5kr4IvGa/lEU5RZb/q00zP9VLdBhC/jQSX3X1UcJLCtEc4gTmib4tnmAT+b"
    "HF/e17ZAuxDNcx6rqT8gNEXqaJGG+1OflMSTU2tpyG65G4dMKdFcoA=="
)
DOCS_PAY_SIGN = (
    "mI35pfNEQV6777ke/1T+LJLQDNTm7yeoUJH+j/adPGhmCCi0PbgkvYQTRcXH0uibcLVtvFLdGLpmoYO9FV6lBBsTAjuhh5YO"
    "vQi0e2g3e0yytitiNET9FEuqM0pjnKfRW4K6LIZDdbWJv9KhZUx3DrJa5TL7OJ7VdADVivxVySIlPVKjGwuCXzuXSJes0UcI"
    "LgWQUMyha5/3nYofuHtS7r+KYyMuxD+oJ9VM1Qdxk4UIG59CP5Y3wtYIFybyF3bdu1caHTRRX+DLyMXyYA/IrTmiW01c4RPj"
    "pHBX5Dk1sZyY1zVsWNsvMHr2e1NTWtBxKJ+qk5N61J7caYoepHFaxw=="
)

GO_CERTIFICATE = """-----BEGIN CERTIFICATE-----
MIIDVzCCAj+gAwIBAgIJANfOWdH1ItcBMA0GCSqGSIb3DQEBCwUAMEIxCzAJBgNV
BAYTAlhYMRUwEwYDVQQHDAxEZWZhdWx0IENpdHkxHDAaBgNVBAoME0RlZmF1bHQg
Q29tcGFueSBMdGQwHhcNMjEwNDI3MDg1NTIzWhcNMzEwNDI1MDg1NTIzWjBCMQsw
CQYDVQQGEwJYWDEVMBMGA1UEBwwMRGVmYXVsdCBDaXR5MRwwGgYDVQQKDBNEZWZh
dWx0IENvbXBhbnkgTHRkMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA
2VCTd91fnUn73Xy9DLvt/V62TVxRTEEstVdeRaZ3B3leO0pldE806mXO4RwdHXag
HQ4vGeZN0yqm++rDsGK+U3AH7kejyD2pXshNP9Cq5YwbptiLGtjcquw4HNxJQUOm
DeJf2vg6byms9RUipiq4SzbJKqJFlUpbuIPDpSpWz10PYmyCNeDGUUK65E5h2B83
4uxl1zNLYQCrkdBzb8oUxwYeP5a2DNxmjL5lsJML7DGr5znsevnoqGRwTm9fxCGf
y8wus7hwKz6clt3Whmmda7UAdb1c08hEQFVRbF14AR73xbnd8N0obCWJPCbzMCtk
aSef4FdEEgEXJiw0VAJT8wIDAQABo1AwTjAdBgNVHQ4EFgQUT1c7nd/SUO76HSoZ
umNUJv1R5PwwHwYDVR0jBBgwFoAUT1c7nd/SUO76HSoZumNUJv1R5PwwDAYDVR0T
BAUwAwEB/zANBgkqhkiG9w0BAQsFAAOCAQEAfTjxKRQMzNB/U6ZoCUS+BSNfa2Oh
0plMN6ZuzwiVVZwg1jywvv5yv04koS7Pd4i9E4gt9ZBUQXlpq+A3oOCEEHNRR6b2
kyazGRM7s0OP5X21WrbpSmKmU6K7hkfx30yYs08LVs/Q8DIhvaj1FCFeJzUCzYn/
fHMq4tsbKO0dKAeydPM/nrUZBmaYQVKMVOORGLFjFKVO7JV6Kq/R86ouhjEPgJOe
2xulNBUcjicqtZlBdEh/PWCYP2SpGVDclKm8jeo175T3EVAkdKzzmfpxtMmnMlmq
cTJOU9TxuGvNASMtjj7pYIerTx+xgZDXEVBWFW9PjJ0TV06tCRsgSHItgg==
-----END CERTIFICATE-----
"""
GO_HEADERS = {
    "wechatpay-nonce": "EcZ9Cmy4Xyx1i6RlJQzLcCyEqDa26NBz",
    "wechatpay-timestamp": "1624523846",
    "wechatpay-serial": "D7CE59D1F522D701",
    "wechatpay-signature": (
        "tJHIiIS9eB2hAYstmAmbbD3ZE5LiIm/Ug5tuL4fC0YOFRWIHV39UFIZXC0e9Wl6lBu6sKvkqDkzpqzBsVHyXFlbYZTOQrVdG"
        "4b6LfTnK4mikv9++ixJMd3vTf2yCqvBkh98zs3Ds5zsYQakzbcwhmw4fMJs4nPLws28H0UW9FjDR//rxELLwXvV1VEA1IBLX"
        "70xptjL8hrfUjEE8kkry6yNJTHZRU8CAc7qHli2Ng1V1qb9ARbK8A3ThmFmPQvRGrapI/jS2laKKgYUmfdEdkNO6B2Cke5e8"
        "VTxY406ArAmQ90GAihDwIcb16TQMnzCMBoutnwZKNiKRACrFmtxw2Q=="
    ),
}
GO_CIPHERTEXT = (
    "YDS3lKPaC4Y52Gf3uhft5qUBlIa8b428AWTtTauHQfQrRw+X1WpiuHIDy0vo1Vd6VEq67aVyqPdDYMkRVSDaZL3iZttevRMO"
    "oPKMifozg6XPWjIZumks/GpT48lI4NizyeaqLBokNebthah3o1H76qSlO9NkDjp9bzmKLEYYH9TEklFUpsvPqOTOcgSLgh21"
    "YJXYR7dEBXFgRLiNIKRgO5JdXh1hccRUAlyVWxE54PXpnQ=="
)
GO_BODY = (
    '{"id":"3119dfba-e649-5eec-ab1e-3412bc4d2e17","create_time":"2021-06-24T16:37:26+08:00",'
    '"resource_type":"encrypt-resource","event_type":"PAYSCORE.USER_OPEN_SERVICE","summary":"签约成功",'
    '"resource":{"original_type":"payscore","algorithm":"AEAD_AES_256_GCM","ciphertext":"'
    + GO_CIPHERTEXT
    + '","associated_data":"payscore","nonce":"Kj7QIyUiYx1q"}}'
).encode()
GO_SIGNED_AT = datetime.fromtimestamp(1624523846, UTC)

JAVA_KEY, JAVA_NONCE, JAVA_ASSOCIATED = "a7cde1ZJB1kG2e7VfTs3jQzaWizur8Gb", "uluk4a9R25RW", "associatedData"
JAVA_PLAIN, JAVA_CIPHERTEXT = "message", "ulwSiIajGClcvcOYvOQ7+l+0PAbzzwI="


@pytest.fixture(scope="module")
def docs_key() -> RSAPrivateKey:
    return wechat_wire.load_private_key(DOCS_KEY)


def test_the_request_signature_of_the_documentation(docs_key: RSAPrivateKey) -> None:
    header = Signer(DOCS_MCHID, DOCS_SERIAL, docs_key).authorization(
        method="GET",
        target="/v3/refund/domestic/refunds/123123123123",
        body=b"",
        timestamp=DOCS_TIME,
        nonce=DOCS_NONCE,
    )
    assert header == (
        f'WECHATPAY2-SHA256-RSA2048 mchid="{DOCS_MCHID}",nonce_str="{DOCS_NONCE}",'
        f'signature="{DOCS_GET_SIGNATURE}",timestamp="{DOCS_TIME}",serial_no="{DOCS_SERIAL}"'
    )


def test_the_mini_program_signature_of_the_documentation(docs_key: RSAPrivateKey) -> None:
    signed = Signer(DOCS_MCHID, DOCS_SERIAL, docs_key).pay_sign(
        app_id="wx2421b1c4370ec43b",
        timestamp=DOCS_TIME,
        nonce=DOCS_NONCE,
        package="prepay_id=wx201410272009395522657a690389285100",
    )
    assert signed == DOCS_PAY_SIGN


def test_the_simulator_signs_and_checks_as_the_documentation(docs_key: RSAPrivateKey) -> None:
    message = f"GET\n/v3/refund/domestic/refunds/123123123123\n{DOCS_TIME}\n{DOCS_NONCE}\n\n".encode()
    assert crypto.sign(DOCS_KEY, message) == DOCS_GET_SIGNATURE
    from payments.simulator.keys import public_pem

    assert crypto.fits(public_pem(docs_key.public_key()), message, DOCS_GET_SIGNATURE)
    assert not crypto.fits(public_pem(docs_key.public_key()), message + b" ", DOCS_GET_SIGNATURE)


def test_a_published_notify_verifies_and_ages() -> None:
    verifier = Verifier.of([wechat_wire.certificate_key(GO_CERTIFICATE)])
    assert verifier.verify(GO_HEADERS, GO_BODY, now=GO_SIGNED_AT) == "D7CE59D1F522D701"
    assert verifier.verify(GO_HEADERS, GO_BODY, now=GO_SIGNED_AT + timedelta(seconds=300))
    with pytest.raises(BadSignature) as late:
        verifier.verify(GO_HEADERS, GO_BODY, now=GO_SIGNED_AT + timedelta(seconds=301))
    assert late.value.kind == "stale"


@pytest.mark.parametrize(
    "change",
    [
        {"wechatpay-nonce": "EcZ9Cmy4Xyx1i6RlJQzLcCyEqDa26NBy"},
        {"wechatpay-timestamp": "1624523847"},
        {"wechatpay-timestamp": "yesterday"},
        {"wechatpay-serial": "D7CE59D1F522D702"},
        {"wechatpay-serial": "not hex"},
        {"wechatpay-signature": "AAAA"},
        {"wechatpay-signature": "no base64!"},
        {"wechatpay-signature-type": "WECHATPAY2-SM2-WITH-SM3"},
    ],
)
def test_a_published_notify_changed_in_one_header_is_forged(change: dict[str, str]) -> None:
    verifier = Verifier.of([wechat_wire.certificate_key(GO_CERTIFICATE)])
    with pytest.raises(BadSignature) as forged:
        verifier.verify(GO_HEADERS | change, GO_BODY, now=GO_SIGNED_AT)
    assert forged.value.kind == "forged"


def test_a_published_notify_without_a_header_is_unsigned() -> None:
    verifier = Verifier.of([wechat_wire.certificate_key(GO_CERTIFICATE)])
    for name in GO_HEADERS:
        rest = {key: value for key, value in GO_HEADERS.items() if key != name}
        with pytest.raises(BadSignature) as unsigned:
            verifier.verify(rest, GO_BODY, now=GO_SIGNED_AT)
        assert unsigned.value.kind == "unsigned"


def test_the_published_notify_decrypts() -> None:
    """Its key has 16 characters (the go library does not mind): the framing is what this shows, AES-256 is
    below."""
    plain = wechat_wire.decrypt("testMchAPIv3Key0", "Kj7QIyUiYx1q", GO_CIPHERTEXT, "payscore")
    assert plain == (
        '{"mchid":"1234567890","appid":"054aa7d7a2a54ab5898df65bd96f001c",'
        '"create_time":"2020-06-30T12:12:00+08:00","out_contract_code":"21640bdbd08e473e828f3206a2741c6e"}'
    )


def test_the_published_aes_256_gcm_vector_both_ways() -> None:
    assert wechat_wire.decrypt(JAVA_KEY, JAVA_NONCE, JAVA_CIPHERTEXT, JAVA_ASSOCIATED) == JAVA_PLAIN
    assert crypto.seal(JAVA_KEY, JAVA_NONCE, JAVA_PLAIN, JAVA_ASSOCIATED) == JAVA_CIPHERTEXT


@pytest.mark.parametrize(
    ("key", "nonce", "ciphertext", "associated"),
    [
        (JAVA_KEY[:-1] + "c", JAVA_NONCE, JAVA_CIPHERTEXT, JAVA_ASSOCIATED),
        (JAVA_KEY, "bad-4a9R25RW", JAVA_CIPHERTEXT, JAVA_ASSOCIATED),
        (JAVA_KEY, JAVA_NONCE, JAVA_CIPHERTEXT, "bad-associatedData"),
        (JAVA_KEY, JAVA_NONCE, "vlwSiIajGClcvcOYvOQ7+l+0PAbzzwI=", JAVA_ASSOCIATED),
        (JAVA_KEY, JAVA_NONCE, "not base64", JAVA_ASSOCIATED),
        (JAVA_KEY, JAVA_NONCE, "", JAVA_ASSOCIATED),
    ],
)
def test_the_aes_vector_with_one_thing_changed_does_not_decrypt(
    key: str, nonce: str, ciphertext: str, associated: str
) -> None:
    with pytest.raises(Undecryptable):
        wechat_wire.decrypt(key, nonce, ciphertext, associated)


def test_the_aes_256_gcm_primitive_of_this_machine_is_nist_s() -> None:
    sealed = AESGCM(bytes.fromhex("feffe9928665731c6d6a8f9467308308" * 2)).encrypt(
        bytes.fromhex("cafebabefacedbaddecaf888"),
        bytes.fromhex(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
        ),
        bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2"),
    )
    assert sealed.hex() == (
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838"
        "c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b"
    )
