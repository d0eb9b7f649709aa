"""Translations without gettext's programs: collect what is said, find the holes, compile.

The source of truth is locale/<language>/LC_MESSAGES/django.po. It holds our own messages, and those of the
libraries we show that bring no translation of their own. `manage.py catalogs` works on it.
"""

import ast
import gettext as system
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from django.apps import apps
from django.utils.translation import to_locale, trans_real
from django.utils.translation.template import templatize

# function: how its leading arguments are read
_CALLS = {
    "gettext": ("id",),
    "gettext_lazy": ("id",),
    "gettext_noop": ("id",),
    "ngettext": ("id", "plural"),
    "ngettext_lazy": ("id", "plural"),
    "pgettext": ("context", "id"),
    "pgettext_lazy": ("context", "id"),
    "npgettext": ("context", "id", "plural"),
    "npgettext_lazy": ("context", "id", "plural"),
}
_IN_TEMPLATE = re.compile(
    r"""\b(?P<call>_|u?n?p?gettext)\(\s*(?P<args>u?(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")"""
    r"""(?:\s*,\s*u?(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"))*)""",
    re.DOTALL,
)
_STRING = re.compile(r"""u?('(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")""", re.DOTALL)
_PLACEHOLDER = re.compile(r"%\([a-z_]+\)[sd]|%[sd]|\{[a-z_]*\}")

SHOWN_LIBRARIES = ("unfold", "axes", "rest_framework", "django.contrib.admin", "django.contrib.auth", "django.forms")
"""Libraries whose messages reach our users. What they say without a translation of their own is ours to translate."""


@dataclass(frozen=True, order=True)
class Said:
    """A message as code says it."""

    id: str
    context: str = ""
    plural: str = ""


@dataclass
class Entry:
    """A message of a .po file with its translations (one, or one per plural form)."""

    said: Said
    texts: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return bool(self.texts) and all(self.texts)


# --- what is said -----------------------------------------------------------------------------------------------


def said_in(folder: Path) -> dict[Said, set[str]]:
    """Every message in the Python files and templates below a folder, with the files that say it."""
    found: dict[Said, set[str]] = {}
    for path in sorted(folder.rglob("*")):
        if {"locale", "node_modules", "tests", "migrations"} & set(path.relative_to(folder).parts):
            continue
        if path.suffix == ".py":
            messages: Iterable[Said] = _in_python(path.read_text(encoding="utf-8"))
        elif path.suffix in (".html", ".txt") and "templates" in path.parts:
            messages = _in_template(path.read_text(encoding="utf-8"))
        else:
            continue
        for message in messages:
            found.setdefault(message, set()).add(path.relative_to(folder.parent).as_posix())
    return found


def _in_python(source: str) -> Iterator[Said]:
    tree = ast.parse(source)
    names = dict(_CALLS)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "django.utils.translation":
            for alias in node.names:
                if alias.name in _CALLS:
                    names[alias.asname or alias.name] = _CALLS[alias.name]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        shape = names.get(name)
        if shape is None or len(node.args) < len(shape):
            continue
        texts = [arg.value for arg in node.args[: len(shape)] if isinstance(arg, ast.Constant)]
        if len(texts) == len(shape) and all(isinstance(text, str) for text in texts):
            yield Said(**dict(zip(shape, map(str, texts), strict=True)))


def _in_template(source: str) -> Iterator[Said]:
    for match in _IN_TEMPLATE.finditer(templatize(source)):
        name = match["call"].removeprefix("u")
        shape = _CALLS["gettext" if name == "_" else name]
        texts = [ast.literal_eval(text) for text in _STRING.findall(match["args"])]
        if len(texts) >= len(shape) and texts[0]:
            yield Said(**dict(zip(shape, texts, strict=False)))


def ours(project: Path, folders: Iterable[str]) -> dict[Said, set[str]]:
    """What our own code and templates say."""
    found: dict[Said, set[str]] = {}
    for name in folders:
        if (project / name).is_dir():
            for message, places in said_in(project / name).items():
                found.setdefault(message, set()).update(places)
    return found


def borrowed() -> dict[Said, set[str]]:
    """What the libraries say that we show."""
    found: dict[Said, set[str]] = {}
    for name in SHOWN_LIBRARIES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            continue
        for message, places in said_in(Path(spec.origin).parent).items():
            found.setdefault(message, set()).update(places)
    return found


def _key(message: Said) -> str | tuple[str, int]:
    text = f"{message.context}\x04{message.id}" if message.context else message.id
    return (text, 0) if message.plural else text


def _library_catalog(language: str) -> dict[str | tuple[str, int], str]:
    """Everything that Django and the installed libraries bring in a language."""
    locale = to_locale(language)
    roots = [Path(trans_real.__file__).parents[2] / "conf" / "locale"]
    roots += [Path(app.path) / "locale" for app in apps.get_app_configs()]
    merged: dict[str | tuple[str, int], str] = {}
    for root in roots:
        path = root / locale / "LC_MESSAGES" / "django.mo"
        if path.exists():
            with path.open("rb") as file:
                merged.update(system.GNUTranslations(file)._catalog)  # type: ignore[attr-defined]
    return merged


# --- the file ---------------------------------------------------------------------------------------------------


def read(path: Path) -> dict[Said, Entry]:
    """The entries of a .po file."""
    entries: dict[Said, Entry] = {}
    if not path.exists():
        return entries
    for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
        parts: dict[str, str] = {}
        places: list[str] = []
        name = ""
        for line in block.splitlines():
            if line.startswith("#:"):
                places += line[2:].split()
            elif line.startswith("#") or not line.strip():
                continue
            elif line.startswith('"'):
                parts[name] += _unquote(line)
            else:
                name, _, text = line.partition(" ")
                parts[name] = _unquote(text)
        if parts.get("msgid"):
            said = Said(parts["msgid"], parts.get("msgctxt", ""), parts.get("msgid_plural", ""))
            texts = [parts[key] for key in sorted(parts) if key.startswith("msgstr")]
            entries[said] = Entry(said, texts, places)
    return entries


def write(path: Path, entries: Iterable[Entry], *, language: str) -> None:
    """Write a .po file, sorted by message so that changes read well."""
    lines = [
        'msgid ""',
        'msgstr ""',
        '"Project-Id-Version: Quits\\n"',
        f'"Language: {language}\\n"',
        '"MIME-Version: 1.0\\n"',
        '"Content-Type: text/plain; charset=UTF-8\\n"',
        '"Content-Transfer-Encoding: 8bit\\n"',
        '"Plural-Forms: nplurals=1; plural=0;\\n"',
    ]
    for entry in sorted(entries, key=lambda entry: (entry.said.id.lower(), entry.said)):
        lines.append("")
        lines += [f"#: {place}" for place in sorted(set(entry.places))[:4]]
        if _PLACEHOLDER.search(entry.said.id) and "%" in entry.said.id:
            lines.append("#, python-format")
        if entry.said.context:
            lines.append(f"msgctxt {_quote(entry.said.context)}")
        lines.append(f"msgid {_quote(entry.said.id)}")
        if entry.said.plural:
            lines.append(f"msgid_plural {_quote(entry.said.plural)}")
            lines.append(f"msgstr[0] {_quote(entry.texts[0] if entry.texts else '')}")
        else:
            lines.append(f"msgstr {_quote(entry.texts[0] if entry.texts else '')}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("\n", "\\n")
    return f'"{escaped}"'


def _unquote(text: str) -> str:
    inner = text.strip()[1:-1]
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), inner)


def compiled(entries: Iterable[Entry]) -> bytes:
    """The .mo form (GNU gettext's binary format) of the finished entries."""
    pairs: list[tuple[bytes, bytes]] = [
        (b"", b"Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=1; plural=0;\n")
    ]
    for entry in entries:
        if entry.is_done:
            key = f"{entry.said.context}\x04{entry.said.id}" if entry.said.context else entry.said.id
            if entry.said.plural:
                key += f"\x00{entry.said.plural}"
            pairs.append((key.encode(), "\x00".join(entry.texts).encode()))
    pairs.sort()
    keys_at = 28
    texts_at = keys_at + 8 * len(pairs)
    offset = texts_at + 8 * len(pairs)
    tables, body = [b"", b""], b""
    for column in (0, 1):
        for pair in pairs:
            tables[column] += struct.pack("<II", len(pair[column]), offset + len(body))
            body += pair[column] + b"\x00"
    head = struct.pack("<7I", 0x950412DE, 0, len(pairs), keys_at, texts_at, 0, offset)
    return head + tables[0] + tables[1] + body


# --- what is missing --------------------------------------------------------------------------------------------


def needed(project: Path, folders: Iterable[str], *, language: str) -> dict[Said, set[str]]:
    """What the file has to hold: all that we say ourselves (also where Django has a word for it: its "Order" is an
    arrangement, ours is a purchase), and what the libraries that we show leave open."""
    catalog = _library_catalog(language)
    open_ones = {message: places for message, places in borrowed().items() if _key(message) not in catalog}
    return {**open_ones, **ours(project, folders)}


def holes(wanted: Iterable[Said], entries: dict[Said, Entry]) -> list[str]:
    """Messages without a translation, and translations whose placeholders differ from the message's."""
    found = []
    for said in sorted(wanted):
        entry = entries.get(said)
        if entry is None or not entry.is_done:
            found.append(f"not translated: {said.id!r}")
            continue
        filled = set(_PLACEHOLDER.findall(said.plural or said.id))
        found += [
            f"placeholders differ: {said.id!r} → {text!r}"
            for text in entry.texts
            if set(_PLACEHOLDER.findall(text)) != filled
        ]
    return found
