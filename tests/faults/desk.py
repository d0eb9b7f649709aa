"""The merchant at the back office, over plain HTTP: logs in, opens a claim, presses a button."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser

import httpx

BUTTON_DATA = {
    "approve": {},
    "reject": {"reason": "the goods are as described"},
    "confirm_return": {},
    "retry_refund": {},
}


CLAIM_PAGE = re.compile(r"/admin/aftersales/aftersalesorder/([0-9a-f-]{36})/change/")


class Away(Exception):
    """The back office did not answer, or not well: to be tried again."""


class _Form(HTMLParser):
    """The fields of the form that acts, with what stands in them."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._inside = False
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form":
            self._inside = "data-once" in given or "id_password" in str(given)
        elif self._inside and tag in ("input", "textarea") and given.get("name"):
            if given.get("type") not in ("submit", "checkbox", "radio"):
                self.fields[str(given["name"])] = given.get("value") or ""
        elif self._inside and tag == "select":
            self._select = str(given.get("name") or "")
        elif self._inside and tag == "option" and self._select and "selected" in given:
            self.fields[self._select] = given.get("value") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
        elif tag == "select":
            self._select = ""


class Desk:
    """One session of one person. Every method either does its work, finds it done, or raises Away."""

    def __init__(self, base_url: str, login: dict[str, str], *, busy: Callable[[bool], None]):
        self._login = login
        self._busy = busy
        self._http = httpx.Client(base_url=base_url, timeout=15, trust_env=False, follow_redirects=True)
        self._in = False

    def press(self, after_sales_no: str, button: str) -> bool:
        """Press a button on a claim. False: it is not offered (any more)."""
        if not self._in:
            self._log_in()
        page = self._get(f"/admin/find/?q={after_sales_no}")
        found = CLAIM_PAGE.search(str(page.url)) or CLAIM_PAGE.search(page.text)
        if found is None:
            raise Away(f"no page of {after_sales_no}: {page.url}")
        asked = self._get(f"/admin/aftersales/aftersalesorder/{found[1]}/do/{button}/")
        if f"/do/{button}/" not in str(asked.url):
            return False
        form = _Form()
        form.feed(asked.text)
        answer = self._send("POST", str(asked.url), data={**form.fields, **BUTTON_DATA[button]})
        return f"/do/{button}/" not in str(answer.url)

    def _log_in(self) -> None:
        self._http.cookies.clear()
        page = self._send("GET", "/admin/login/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        if token is None:
            raise Away("no log-in form")
        answer = self._send(
            "POST",
            "/admin/login/?next=/admin/",
            data={
                "csrfmiddlewaretoken": token[1],
                "username": self._login["username"],
                "password": self._login["password"],
            },
        )
        if "/login/" in str(answer.url):
            raise Away("the log-in was refused")
        self._in = True

    def _get(self, path: str) -> httpx.Response:
        page = self._send("GET", path)
        if "/login/" in str(page.url):
            self._in = False
            raise Away("logged out")
        return page

    def _send(self, method: str, path: str, **more: dict[str, str]) -> httpx.Response:
        self._busy(True)
        try:
            answer = self._http.request(method, path, **more)  # type: ignore[arg-type]
        except httpx.HTTPError as error:
            raise Away(repr(error)) from error
        finally:
            self._busy(False)
        if answer.status_code >= 500 or answer.status_code == 429:
            raise Away(f"{answer.status_code} {path}")
        if answer.status_code >= 400:
            self._in = False
            raise Away(f"{answer.status_code} {method} {path}")
        return answer
