"""The merchant in a real browser: logs in, decides about returns, and is photographed doing so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
LANGUAGES = {"zh": "zh-CN", "en": "en-GB"}


@contextmanager
def visits(browser: Browser) -> Iterator[Browser]:
    """The session's browser (pytest-playwright's: two Playwrights cannot live in one process), left as it was."""
    before = set(browser.contexts)
    try:
        yield browser
    finally:
        for context in set(browser.contexts) - before:
            context.close()


@dataclass
class BackOffice:
    """One person at the back office. Console errors and failed requests of every page are collected in `trouble`."""

    page: Page
    base_url: str
    trouble: list[str]

    @classmethod
    def open(
        cls, browser: Browser, base_url: str, login: dict[str, str], *, language: str = "zh", phone: bool = False
    ) -> BackOffice:
        context = browser.new_context(
            viewport=PHONE if phone else WIDE,  # type: ignore[arg-type]
            locale=LANGUAGES[language],
            timezone_id="Asia/Shanghai",
            device_scale_factor=2 if phone else 1,
        )
        context.set_default_timeout(20_000)
        page = context.new_page()
        trouble: list[str] = []
        page.on("pageerror", lambda error: trouble.append(f"{page.url}: {error}"))
        page.on("console", lambda said: trouble.append(f"{page.url}: {said.text}") if said.type == "error" else None)
        page.on("response", lambda got: trouble.append(f"{got.status} {got.url}") if got.status >= 400 else None)
        desk = cls(page, base_url, trouble)
        desk.log_in(login)
        return desk

    def log_in(self, login: dict[str, str]) -> None:
        self.page.goto(f"{self.base_url}/admin/login/")
        self.page.fill("input[name=username]", login["username"])
        self.page.fill("input[name=password]", login["password"])
        self.page.click("form:has(input[name=password]) button[type=submit]")
        expect(self.page).to_have_url(re.compile(r"/admin/$"))

    def visit(self, path: str) -> None:
        answer = self.page.goto(self.base_url + path)
        assert answer is not None and answer.status == 200, f"{path}: {answer and answer.status}"
        self.page.wait_for_load_state("networkidle")

    def find_claim(self, number: str) -> None:
        """By the search box: one hit opens its page."""
        self.visit(f"/admin/find/?q={number}")
        if number not in self.page.url and "/change/" not in self.page.url:
            self.page.click(f"a:has-text('{number}')")
        expect(self.page.locator("body")).to_contain_text(number)

    def press(self, button: str, **fields: str) -> None:
        """A button of the page, its question answered, and the answer sent once."""
        self.page.click(f"a[data-button={button}]")
        for name, value in fields.items():
            self.page.fill(f"[name={name}]", value)
        self.page.click("form[data-once] button[type=submit]")
        self.page.wait_for_load_state("networkidle")

    def approve(self, number: str) -> None:
        self.find_claim(number)
        self.press("approve")

    def receive(self, number: str) -> None:
        self.find_claim(number)
        self.press("confirm_return")

    def photograph(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(path), full_page=True)
        return path

    def picture(self, path: Path) -> None:
        """A screenshot of a page that is drawn whole."""
        self.page.wait_for_load_state("networkidle")
        self.photograph(path)
        assert not self.overflows(), f"{path.stem} is cut off"

    def overflows(self) -> bool:
        """Whether the page is wider than its window: then a phone shows it cut off."""
        return bool(
            self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth + 1")
        )
