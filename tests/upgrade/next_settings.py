"""The settings of a release after this one: the same, and an app more that changes a hot table."""

from config.settings import *  # noqa: F403
from config.settings import DATABASE_OWNER_URL, DATABASES, INSTALLED_APPS, dj_database_url

INSTALLED_APPS = [*INSTALLED_APPS, "tests.upgrade.next_release"]
_owner = dj_database_url.parse(DATABASE_OWNER_URL)
DATABASES["default"].update({name: _owner[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT")})
