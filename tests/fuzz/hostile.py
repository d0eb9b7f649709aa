"""Values and shapes that nobody should send, and how a good request is spoiled with them."""

from __future__ import annotations

import json
from base64 import b64encode
from copy import deepcopy
from random import Random
from typing import Any
from urllib.parse import quote

from tests.fuzz.world import Good

VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 3, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30),
    *(1.0, 1.5, -0.0, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", " ", "0", "1", "-1", "null", "x" * 65, "x" * 5000, "\x00", "a\x00b", "a\nb", "\x1b[31m", "\x7f"),
    *("\ud800", "a\udfffb", "\uffff", "\ufeff", "\u202e", "\U0001f600" * 40, "ß", "e\u0301", "１２", "\u2028"),
    *(
        "<script>alert(1)</script>",
        "'; DROP TABLE orders; --",
        "../../etc/passwd",
        "%00",
        "{{7*7}}",
        "=1+1",
        "\r\nX: y",
    ),
    *("2026-02-30T00:00:00Z", "9999-12-31T23:59:59.999999-23:59", "0001-01-01T00:00:00+23:59", "2026-11-30"),
    *("0000-00-00T00:00:00Z", "2026-11-30T24:00:00Z", "00000000-0000-0000-0000-000000000000", "urn:uuid:x", "NaN"),
    *([], [[]], [None], {}, {"": ""}, {"a": {"b": {"c": []}}}, {"\x00": "\x00"}, {"\ud800": "x"}, ["x"] * 200),
]
KEYS = ["", " ", "\x7f", "x" * 129, "键".encode().decode("latin-1"), "a b", "a\tb", "null", '"quoted"']
QUERY = [
    "",
    "0",
    "-1",
    "101",
    "100000000000000000000",
    "1.5",
    "abc",
    "\x00",
    "%00",
    "x" * 3000,
    "é",
    "bz0x",
]
POSITIONS = [
    *(
        "p=2026",
        "p=",
        "p=%00",
        "p=x",
        "p=2026-02-30T00:00:00Z",
        "p=2026-11-30",
        "p=99999999999999999999",
        "p=%27",
        "p=-1",
    ),
    *(
        "p=9999-12-31T23:59:59.999999-23:59",
        "p=0001-01-01T00:00:00%2B23:59",
        "p=0001-01-01T00:00:00",
        "p=2026-11-30&p=x",
    ),
    *("o=-1", "o=1e3", "o=9999999999999999999999", "r=2", "r=x", "r=1&p=x", "r=" + "9" * 5000, "o=1&r=1&p=x", "x", ""),
    *("p=01a22d57-b650-7153-ac37-ca2da1352c4f", "p=01A22D57B6507153AC37CA2DA1352C4F", "p=urn:uuid:x", "p=" + "9" * 40),
]
CURSORS = [b64encode(position.encode()).decode() for position in POSITIONS]
"""Well encoded, so that the library takes them; what is in them makes no sense for one column or the other."""
JSON = "application/json"


def nested(depth: int, *, opening: str = '{"a":', closing: str = "}") -> bytes:
    """JSON that goes deeper than a parser may follow."""
    return (opening * depth + "1" + closing * depth).encode()


def dumped(body: Any) -> bytes:
    """JSON as a careless client makes it: NaN, lone surrogates (escaped) and all."""
    return json.dumps(body).encode()


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, as the path to it."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for name, item in inner for found in [(*here, name), *places(item, (*here, name))]]


def spoiled(good: Good, chance: Random) -> tuple[Good, dict[str, str]]:
    """A copy with one to three things wrong, and headers to go with it."""
    bad, headers = deepcopy(good), {}
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        kind = chance.choice(("member", "member", "member", "member", "shape", "text", "path", "query", "key", "type"))
        if kind == "member" and isinstance(bad.body, dict):
            _spoil_member(bad.body, chance)
        elif kind == "shape" and isinstance(bad.body, dict) and "file" not in bad.body:
            _spoil_shape(bad, chance)
        elif kind == "text" and isinstance(bad.body, dict) and "file" not in bad.body:
            bad.raw = _odd_text(bad.body, chance)
        elif kind == "path" and bad.path:
            bad.path[chance.choice(list(bad.path))] = _odd_path(chance)
        elif kind == "query":
            name = chance.choice([*bad.query, "limit", "cursor", "user_id", "status", "format", "surprise"])
            bad.query[name] = chance.choice(CURSORS if name == "cursor" and chance.random() < 0.7 else QUERY)
        elif kind == "key":
            headers["Idempotency-Key"] = chance.choice(KEYS)
        elif kind == "type":
            odd = ("text/plain", "application/xml", "application/json; charset=utf-16", "multipart/form-data", ";;;")
            headers[chance.choice(("Content-Type", "Accept"))] = chance.choice(odd)
    return bad, headers


def _spoil_member(body: Any, chance: Random) -> None:
    where = places(body)
    if not where:
        body["surprise"] = 1
        return
    *outer, name = chance.choice(where)
    holder = body
    for step in outer:
        holder = holder[step]
    what = chance.random()
    if what < 0.75:
        holder[name] = deepcopy(chance.choice(VALUES))
    elif what < 0.85:
        del holder[name]
    elif isinstance(holder, dict):
        holder[chance.choice(("surprise", "\x00", "\ud800", "x" * 5000, "__class__", ""))] = chance.choice(VALUES)
    else:
        holder.extend(holder * 60)


def _spoil_shape(bad: Good, chance: Random) -> None:
    bad.body = chance.choice(([], [bad.body], "text", 7, True, None, {}, {"body": bad.body}))


def _odd_text(body: dict[str, Any], chance: Random) -> bytes:
    text = dumped(body)
    twice = text[:-1] + b"," + dumped({next(iter(body), "a"): "second"})[1:]
    return chance.choice(
        (
            b"",
            b"{",
            text[: len(text) // 2],
            text + text,
            b"\xef\xbb\xbf" + text,
            text.decode().encode("utf-16"),
            b"\xff\xfe\x00",
            text.replace(b'"', b"'"),
            twice,
            nested(2_000),
            nested(50_000),
            nested(60_000, opening="[", closing="]"),
            b'{"a":' + b"9" * 5000 + b"}",
            b'{"a":1e999}',
            text[:-1] + b',"extra":' + b"[" * 900 + b"]" * 900 + b"}",
            b"{" + b" " * 200_000 + text[1:],
        )
    )


def _odd_path(chance: Random) -> str:
    return chance.choice(
        (
            "00000000-0000-0000-0000-000000000000",
            "01a22d57-b650-7153-ac37-ca2da1352c4f",
            "01A22D57-B650-7153-AC37-CA2DA1352C4F",
            "0",
            "-",
            "x" * 300,
            "x" * 5000,
            "%00",
            "\x00",
            "é",
            "\U0001f600",
            "a/b",
            "..",
            "wechat",
            "balance",
            "2026113000000000001",
            "' or 1=1",
        )
    )


def quoted(value: Any) -> str:
    return quote(str(value).encode("utf-8", "surrogatepass"), safe="")
