"""The status stream, a process of its own: open streams never hold a worker of the web process."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from orders.stream import application  # noqa: E402 (models need the settings first)

__all__ = ["application"]
