"""A real browser in front of the real back office."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from playwright.sync_api import ConsoleMessage, Page, Request

from merchants.models import Staff
from tests.merchants.factories import PASSWORD

# Playwright's loop runs in the thread of the test; the ORM calls of fixtures beside it are ordinary ones.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")

WIDE = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


def chromium() -> str:
    """The browser's path. Its absence fails the run: nothing is skipped silently."""
    found = os.environ.get("QUITS_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    found = found or shutil.which("google-chrome")
    assert found, "no Chromium is installed: the browser tests need one (for example: apt-get install chromium)"
    return found


@pytest.fixture(autouse=True)
def _cheap_hashes(settings) -> None:
    """A password that nobody steals needs no million rounds."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict:
    return {"executable_path": chromium(), "args": ["--no-sandbox", "--disable-gpu"]}


@pytest.fixture
def browser_context_args() -> dict:
    return {"viewport": WIDE, "locale": "zh-CN"}


@pytest.fixture
def console(page: Page) -> list[str]:
    """Errors of the browser's console and requests that left our host; empty at the end of every test."""
    seen: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type == "error":
            seen.append(f"{message.text} {message.location.get('url', '')}")

    def fail(request: Request) -> None:
        # The browser itself drops what a page was still loading when the person moves on: that is no failure.
        if request.failure != "net::ERR_ABORTED":
            seen.append(f"failed: {request.url} {request.failure}")

    page.set_default_timeout(60_000)
    page.on("console", hear)
    page.on("pageerror", lambda error: seen.append(str(error)))
    page.on("requestfailed", fail)
    page.on(
        "request",
        lambda request: (
            seen.append(f"elsewhere: {request.url}")
            if not request.url.startswith(("http://localhost", "http://127.0.0.1", "data:", "blob:"))
            else None
        ),
    )
    return seen


@pytest.fixture
def shot(page: Page) -> Callable[[str], None]:
    """Keep a picture of the page at both widths, below $QUITS_VAR/screenshots; nothing may stick out of either."""
    folder = Path(django_settings.QUITS_VAR) / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)

    def take(name: str) -> None:
        before = page.viewport_size
        for width, size in (("1280", WIDE), ("phone", PHONE)):
            page.set_viewport_size(size)
            page.wait_for_timeout(150)
            too_wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert too_wide <= 0, f"{name} is {too_wide} px too wide for {width}"
            page.screenshot(path=folder / f"{name}-{width}.png", full_page=True)
        page.set_viewport_size(before or WIDE)

    return take


@pytest.fixture
def guide_shot(page: Page) -> Callable[[str], None]:
    """A picture for docs/guide, kept below $QUITS_VAR/screenshots/guide."""
    folder = Path(django_settings.QUITS_VAR) / "screenshots/guide"
    folder.mkdir(parents=True, exist_ok=True)

    def take(name: str) -> None:
        page.wait_for_timeout(150)
        page.screenshot(path=folder / f"{name}.png", full_page=True)

    return take


@pytest.fixture
def log_in(page: Page, live_server) -> Callable[..., None]:
    """Log in through the login page."""

    def enter(staff: Staff, password: str = PASSWORD) -> None:
        page.goto(f"{live_server.url}/admin/login/")
        page.fill("[name=username]", staff.user.get_username())
        page.fill("[name=password]", password)
        page.click("#login-form button[type=submit]")
        page.wait_for_url(f"{live_server.url}/admin/")

    return enter
