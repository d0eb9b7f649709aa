"""zh-Hans has no holes, and the compiled file says what the source file says."""

import gettext
import io
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.utils import translation

from kernel import catalogs
from kernel.management.commands.catalogs import folders, po_path


def test_every_message_has_its_translation():
    try:
        call_command("catalogs", stdout=StringIO())
    except CommandError as error:
        pytest.fail(f"python manage.py catalogs --collect --compile, then translate:\n{error}")


def test_compiled_form_is_read_by_gettext():
    entries = [
        catalogs.Entry(catalogs.Said("One %(n)s", plural="Many %(n)s"), ["%(n)s 个"]),
        catalogs.Entry(catalogs.Said("May", context="month"), ["五月"]),
        catalogs.Entry(catalogs.Said('Quote " and\nline'), ["引号 “ 和\n换行"]),
        catalogs.Entry(catalogs.Said("Not done"), [""]),
    ]

    read = gettext.GNUTranslations(io.BytesIO(catalogs.compiled(entries)))

    assert read.ngettext("One %(n)s", "Many %(n)s", 5) == "%(n)s 个"
    assert read.pgettext("month", "May") == "五月"
    assert read.gettext('Quote " and\nline') == "引号 “ 和\n换行"
    assert read.gettext("Not done") == "Not done"


def test_source_file_is_written_and_read_back(tmp_path: Path):
    entries = catalogs.read(po_path("zh-hans"))

    catalogs.write(tmp_path / "django.po", entries.values(), language="zh_Hans")

    assert catalogs.read(tmp_path / "django.po") == entries


def test_holes_are_found(tmp_path: Path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "models.py").write_text(
        "from django.utils.translation import gettext_lazy as said, ngettext\n"
        'A = said("A thing nobody translated")\n'
        'B = ngettext("%(n)s strange thing", "%(n)s strange things", 2)\n'
    )
    (tmp_path / "shop" / "templates").mkdir()
    (tmp_path / "shop" / "templates" / "x.html").write_text(
        "{% load i18n %}{% translate 'In a template' context 'shop' %}"
        "{% blocktranslate trimmed %}\n  Over   two\n  lines {{ who }}\n{% endblocktranslate %}"
    )

    said = catalogs.ours(tmp_path, ["shop"])

    assert set(said) == {
        catalogs.Said("A thing nobody translated"),
        catalogs.Said("%(n)s strange thing", plural="%(n)s strange things"),
        catalogs.Said("In a template", context="shop"),
        catalogs.Said("Over   two lines %(who)s"),
    }
    half = {catalogs.Said("A thing nobody translated"): catalogs.Entry(catalogs.Said("x"), ["没有 %(n)s"])}
    assert len(catalogs.holes(said, half)) == 4


@pytest.mark.parametrize("phrase", ["Type to search", "Select action to run", "Log out", "Reset filters"])
def test_the_theme_speaks_chinese(phrase):
    with translation.override("zh-hans"):
        assert translation.gettext(phrase) != phrase


def test_our_own_folders_are_collected():
    assert {"kernel", "merchants", "templates"} <= set(folders())
    assert all((Path(settings.BASE_DIR) / name).is_dir() for name in folders())
