"""The page for people: bilingual, of this machine only, and nothing from elsewhere."""

from __future__ import annotations

import re

import httpx

from payments.simulator.client import SimulatorClient
from tests.payments.wire.conftest import Shop


def test_the_page_stands_alone(sim: SimulatorClient) -> None:
    answer = httpx.get(f"{sim.base_url}/", trust_env=False, verify=False)
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    text = answer.text
    assert not re.search(r"(https?:)?//[\w.]+/", text.replace("<!doctype html>", ""))
    chinese, english = (set(re.findall(r"(\w+):\"", part)) for part in re.findall(r"(?:zh|en):\{(.*?)\}", text))
    assert chinese == english, "a word lacks its translation"
    used = set(re.findall(r"data-t=\"(\w+)\"", text)) | set(re.findall(r"\bt\(\"(\w+)\"\)", text))
    assert used <= chinese


def test_the_state_that_it_shows(shop: Shop, sim: SimulatorClient) -> None:
    out_trade_no = shop.paid(1990)
    shop.refund(out_trade_no, 990, 1990)
    state = sim.get("state")
    order = next(each for each in state["orders"] if each["out_trade_no"] == out_trade_no)
    assert (order["total_fen"], order["state"], len(order["charges"])) == (1990, "SUCCESS", 1)
    assert state["refunds"][0]["amount_fen"] == 990
    assert {"wechat.refund", "notify.payment"} <= set(sim.get("fault-kinds")["operations"])
