"""Codes against the published vectors of RFC 4226 (HOTP) and RFC 6238 (TOTP)."""

import base64
from datetime import UTC, datetime

import pytest

from merchants import one_time_codes as codes

SECRET = base64.b32encode(b"12345678901234567890").decode()


@pytest.mark.parametrize(
    ("counter", "code"),
    list(
        enumerate(["755224", "287082", "359152", "969429", "338314", "254676", "287922", "162583", "399871", "520489"])
    ),
)
def test_rfc_4226_appendix_d(counter, code):
    assert codes.code_at(SECRET, counter) == code


@pytest.mark.parametrize(
    ("seconds", "code"),
    [
        (59, "94287082"),
        (1111111109, "07081804"),
        (1111111111, "14050471"),
        (1234567890, "89005924"),
        (2000000000, "69279037"),
        (20000000000, "65353130"),
    ],
)
def test_rfc_6238_appendix_b(seconds, code):
    step = codes.step_of(datetime.fromtimestamp(seconds, UTC))

    assert codes.code_at(SECRET, step, digits=8) == code


def test_one_step_of_drift_and_no_step_twice(now):
    step = codes.step_of(now)

    for offset, fits in ((-2, False), (-1, True), (0, True), (1, True), (2, False)):
        found = codes.matching_step(SECRET, codes.code_at(SECRET, step + offset), now=now, after=0)
        assert found == (step + offset if fits else None)
    assert codes.matching_step(SECRET, codes.code_at(SECRET, step), now=now, after=step) is None


def test_secrets_and_recovery_codes_are_not_guessable():
    assert len(base64.b32decode(codes.new_secret())) == 20
    made = codes.new_recovery_codes()
    assert len(set(made)) == 8 and all(len(code) == 11 for code in made)
    assert codes.recovery_hash(made[0].upper()) == codes.recovery_hash(made[0])


def test_codes_count_as_they_were_meant(now):
    code = codes.code_at(SECRET, codes.step_of(now))
    wide = "".join(chr(ord(digit) + 0xFEE0) for digit in code)

    assert codes.matching_step(SECRET, wide, now=now, after=0) == codes.step_of(now)
    assert codes.matching_step(SECRET, f"{code[:3]} {code[3:]}", now=now, after=0) == codes.step_of(now)
    for wrong in ("é" * 6, "١٢٣٤٥٦", "一二三四五六", ""):
        assert codes.matching_step(SECRET, wrong, now=now, after=0) is None
    for typed in ("ABCDE-FGHIJ", "abcdefghij", " abcde fghij ", "abcde - fghij", "ａｂｃｄｅ－ｆｇｈｉｊ"):
        assert codes.recovery_hash(typed) == codes.recovery_hash("abcde-fghij")


def test_recovery_codes_on_paper_stay_good():
    """What was stored before codes were read more kindly."""
    assert codes.recovery_hash("abcde-fghij") == "741f4888fea1b7bb34e148c8ed6a7f8203f5885c65ddce0243e68bf786210ba4"
