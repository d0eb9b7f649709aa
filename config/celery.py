"""The Celery application. Tasks are found in each app's tasks.py; the beat table is config/schedule.py."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("quits")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
