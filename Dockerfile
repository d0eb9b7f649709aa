# The image of every process of Quits: web, stream, workers, beat, and the one that migrates (compose.yaml).
FROM python:3.11-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/quits/venv
COPY requirements.txt /opt/quits/requirements.txt
RUN /opt/quits/venv/bin/pip install --require-hashes --no-deps -r /opt/quits/requirements.txt

FROM python:3.11-slim-bookworm
RUN groupadd --system --gid 10001 quits && useradd --system --uid 10001 --gid quits --home-dir /var/lib/quits quits \
    && install -d -o quits -g quits -m 0750 /var/lib/quits /var/lib/quits/evidence
ENV PATH=/opt/quits/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DJANGO_SETTINGS_MODULE=config.settings \
    QUITS_VAR=/var/lib/quits
COPY --from=build /opt/quits/venv /opt/quits/venv
COPY . /opt/quits/app
WORKDIR /opt/quits/app
# Static files belong to the release, so they lie in the image; /var/lib/quits/static is a link to them.
RUN QUITS_VAR=/opt/quits python manage.py collectstatic --no-input --verbosity 0 \
    && python -m compileall -q /opt/quits/app /opt/quits/venv \
    && ln -s /opt/quits/static /var/lib/quits/static
USER quits
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["python", "deploy/healthy.py", "/healthz"]
CMD ["python", "-m", "granian", "--host", "0.0.0.0", "--no-ws", "--respawn-failed-workers", "--interface", "wsgi", \
     "--port", "8000", "--workers", "2", "--blocking-threads", "8", "--workers-kill-timeout", "15", \
     "config.wsgi:application"]
