from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import to_locale

from kernel import catalogs
from kernel.admin import site
from kernel.admin.naming import made_up

TRANSLATED = ["zh-hans"]
"""English is what the code says; every other language has a file."""


def folders() -> list[str]:
    """Where our own messages are said."""
    mine = [app.name for app in apps.get_app_configs() if Path(app.path).parent == settings.BASE_DIR]
    return [*mine, "config", "templates"]


def po_path(language: str) -> Path:
    return Path(settings.LOCALE_PATHS[0]) / to_locale(language) / "LC_MESSAGES" / "django.po"


def wanted_in(language: str) -> dict[catalogs.Said, set[str]]:
    """All that has to be translated: what code and templates say, and the made-up names of fields that pages show."""
    wanted = catalogs.needed(Path(settings.BASE_DIR), folders(), language=language)
    for name, place in made_up(site).items():
        wanted.setdefault(catalogs.Said(name), set()).add(place)
    return wanted


class Command(BaseCommand):
    help = (
        "Translations without gettext's programs. Without options: check that nothing is missing and that the "
        "compiled file is up to date."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--collect", action="store_true", help="add new messages to the .po file, drop unsaid ones")
        parser.add_argument("--compile", action="store_true", help="write the .mo file")

    def handle(self, *args: Any, **options: Any) -> None:
        found: list[str] = []
        for language in TRANSLATED:
            path = po_path(language)
            wanted = wanted_in(language)
            entries = catalogs.read(path)
            if options["collect"]:
                kept = [
                    catalogs.Entry(said, entries[said].texts if said in entries else [], sorted(places))
                    for said, places in wanted.items()
                ]
                catalogs.write(path, kept, language=to_locale(language))
                entries = catalogs.read(path)
            if options["compile"]:
                path.with_suffix(".mo").write_bytes(catalogs.compiled(entries.values()))
            found += [f"{language}: {hole}" for hole in catalogs.holes(wanted, entries)]
            compiled = path.with_suffix(".mo")
            if not compiled.exists() or compiled.read_bytes() != catalogs.compiled(entries.values()):
                found.append(f"{language}: {compiled.name} is not what {path.name} compiles to: catalogs --compile")
        if found:
            raise CommandError("\n".join(found))
        self.stdout.write("Every message is translated.")
