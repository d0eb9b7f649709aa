"""The back office of coupons in a real browser, and what its lists cost."""

import re
from datetime import timedelta
from functools import partial

import pytest
from django.test import Client
from playwright.sync_api import Page, expect

from coupons import facts
from coupons.facts import LeaseVerdict, OrderMoment
from coupons.models import CouponOperation, CouponRefusal, RefundCoupon, ReturnPolicy, UserCoupon
from coupons.refusals import CouponRefused
from kernel import clock
from kernel.models import IdempotencyKey
from merchants.models import Merchant, StaffAction
from merchants.roles import Role
from tests.coupons.factories import Shop, decide, give_back, make_shop, state
from tests.merchants.factories import a_person


class Facts:
    """What the order app would answer."""

    def lease_verdicts(self, *, merchant_id, order_nos, now):
        return dict.fromkeys(order_nos, LeaseVerdict.WAIT)

    def moments(self, *, merchant_id, order_nos):
        from tests.conftest import NOW

        return [
            OrderMoment(NOW + timedelta(seconds=30), "order", "Q01", "Order created", amount_fen=26000),
            OrderMoment(NOW + timedelta(seconds=250), "payment", "Q02", "Paid", "4200001", 26000),
            OrderMoment(NOW + timedelta(seconds=500), "refund", "Q02", "Refunded", "5000001", 26000),
        ]


@pytest.fixture
def incident(shop: Shop, monkeypatch) -> UserCoupon:
    """The source's story, and its end: A locks, is closed; B locks; A's late redeem is refused; B pays, is refunded."""
    monkeypatch.setattr(facts, "_registered", [Facts()])
    later = [shop.now + timedelta(seconds=second) for second in range(0, 1000, 60)]
    coupon_id = shop.issue().coupon_id
    a = shop.lock(coupon_id, "Q01", now=later[1])
    shop.release(a, now=later[2], reason="closed: timeout")
    b = shop.lock(coupon_id, "Q02", now=later[3])
    with pytest.raises(CouponRefused):
        shop.redeem(a, now=later[4])
    shop.renew(b, now=later[5], expires_at=later[5] + timedelta(minutes=30))
    done = shop.redeem(b, now=later[6], expected_version=5)
    give_back(shop, decide(shop, done.redemption_id, now=later[7]), now=later[8])
    return UserCoupon.objects.get(pk=coupon_id)


def operations(now):
    return a_person(role=Role.OPERATIONS, now=now, username="ops")


def test_the_life_of_a_coupon_is_drawn(incident, now, live_server, page: Page, log_in, shot, console) -> None:
    log_in(operations(now))

    page.goto(f"{live_server.url}/admin/coupons/usercoupon/{incident.pk}/change/")

    expect(page.locator("[data-timeline] [data-kind=operation]")).to_have_count(7)
    expect(page.locator("[data-timeline] [data-kind=refusal]")).to_have_count(1)
    expect(page.locator("[data-timeline] [data-kind=decision]")).to_have_count(1)
    expect(page.locator("[data-timeline] [data-kind=payment]")).to_have_count(1)
    expect(page.locator("[data-timeline] [data-kind=gap]")).to_have_count(0)
    versions = page.locator("[data-kind=operation]").evaluate_all("rows => rows.map(row => row.dataset.version)")
    assert versions == ["1", "2", "3", "4", "5", "6", "7"]
    expect(page.locator("[data-timeline]")).to_contain_text("锁定令牌与当前持有者不符")
    expect(page.locator("body")).to_contain_text("满 ¥300.00 减 ¥50.00")
    assert "user-1" not in page.locator(".cp-head").inner_text(), "masked until revealed"
    shot("coupon-timeline-zh")
    page.goto(f"{live_server.url}/admin/coupons/usercoupon/?q=Q02")
    expect(page.locator("#result_list tbody tr")).to_have_count(1)
    shot("coupon-list-zh")
    assert console == []


def test_in_english(incident, now, live_server, page: Page, log_in, shot, console) -> None:
    page.context.add_cookies([{"name": "django_language", "value": "en", "url": live_server.url}])
    log_in(operations(now))

    page.goto(f"{live_server.url}/admin/coupons/usercoupon/{incident.pk}/change/")

    expect(page.locator("body")).to_contain_text("¥50.00 off from ¥300.00")
    expect(page.locator("body")).to_contain_text("Refused: Redeem")
    assert not re.search(r"[\u4e00-\u9fff]", page.locator(".cp-head").inner_text())
    assert not re.search(r"[\u4e00-\u9fff]", page.locator("[data-timeline]").inner_text())
    shot("coupon-timeline-en")
    assert console == []


def test_gaps_are_drawn(incident, now, monkeypatch) -> None:
    """The database makes a gap impossible, so the ledger is read here as if a row had been taken out of it."""
    from coupons import queries

    whole = CouponOperation.objects.all()
    monkeypatch.setattr(
        queries.CouponOperation, "objects", _Without(whole.exclude(coupon=incident, to_version=3)), raising=False
    )

    timeline = queries.get_timeline(incident)

    assert timeline.gaps == [3]
    (gap,) = [entry for entry in timeline.entries if entry.kind == "gap"]
    assert gap.version == 3
    spine = [entry.version for entry in timeline.entries if entry.kind in ("operation", "gap")]
    assert spine == [1, 2, 3, 4, 5, 6, 7]


class _Without:
    def __init__(self, rows) -> None:
        self.rows = rows

    def filter(self, **lookup):
        return self.rows.filter(**lookup)


def test_void_and_undo_by_buttons(shop: Shop, now, live_server, page: Page, log_in, console) -> None:
    coupon_id = shop.issue().coupon_id
    log_in(operations(now))
    there = f"{live_server.url}/admin/coupons/usercoupon/{coupon_id}/"

    page.goto(f"{there}change/")
    page.click("[data-button=void]")
    page.fill("[name=reason]", "leaked in a forum")
    page.click("main form [type=submit], #content form [type=submit]")
    page.wait_for_url(f"{there}change/")
    assert state(coupon_id) == ("VOID", 2)
    page.click("[data-button=undo]")
    page.fill("[name=reason]", "the wrong one")
    page.click("main form [type=submit], #content form [type=submit]")
    page.wait_for_url(f"{there}change/")

    assert state(coupon_id) == ("AVAILABLE", 3)
    actors = CouponOperation.objects.filter(coupon_id=coupon_id).order_by("to_version")
    assert [row.actor for row in actors] == ["system", "staff:ops", "staff:ops"]
    trail = StaffAction.objects.order_by("id").values_list("action", "before__status", "after__status")
    assert list(trail) == [("void", "AVAILABLE", "VOID"), ("undo", "VOID", "AVAILABLE")]
    assert console == []


def _as(person) -> Client:
    http = Client(headers={"accept-language": "en"})
    http.force_login(person.user)
    return http


def test_a_review_is_settled_on_its_page(shop: Shop, now) -> None:
    done = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))
    waiting = decide(shop, done.redemption_id, risk_flagged=True)
    http = _as(operations(now))
    url = f"/admin/coupons/refundcoupon/{waiting.decision_id}/do/settle/"
    assert http.get(url).status_code == 200

    answer = http.post(url, {"decision": "RETURN", "reason": "fine", "once": "one"})

    assert answer.status_code == 302
    assert state(done.coupon_id) == ("AVAILABLE", 4)
    assert RefundCoupon.objects.filter(review_of_id=waiting.decision_id, decision="RETURN").count() == 1
    assert http.post(url, {"decision": "VOID", "reason": "again", "once": "two"}).status_code == 302
    assert state(done.coupon_id) == ("AVAILABLE", 4)


def test_templates_campaigns_and_policies_are_made_on_their_pages(shop: Shop, now) -> None:
    http = _as(operations(now))
    merchant = Merchant.objects.get(pk=shop.merchant_id)

    def press(path: str, **values: str) -> None:
        answer = http.post(
            f"/admin/coupons/{path}/", {"merchant": str(merchant.pk), "once": path.replace("/", "-"), **values}
        )
        assert answer.status_code == 302, answer.content.decode()[-3000:]

    press(
        "coupontemplate/do/create",
        code="ten",
        name="10 % off",
        kind="PERCENT",
        rate="10",
        cap="30",
        threshold="50",
        valid_days="7",
        policy_code="standard",
    )
    press("campaign/do/create", code="spring", name="Spring", template_code="ten", total_limit="5")
    press(
        "returnpolicy/do/create",
        code="standard",
        on_full_refund="KEEP",
        when_expired="KEEP",
        when_campaign_closed="KEEP",
        when_risk_flagged="REVIEW",
    )
    draft = ReturnPolicy.objects.get(version=2)
    press(f"returnpolicy/{draft.pk}/do/publish", seen_version=str(draft.version))

    issue = partial(shop.issue, template_code="ten", campaign_code="spring", now=clock.now())
    issued = UserCoupon.objects.get(pk=issue().coupon_id)
    assert (issued.template_snapshot["rate_bp"], issued.template_snapshot["cap_fen"]) == (1000, 3000)
    assert issued.policy_snapshot["rules"]["on_full_refund"] == "KEEP"
    for page in ("coupontemplate", "campaign", "returnpolicy", "couponrefusal", "refundcoupon", "usercoupon"):
        assert http.get(f"/admin/coupons/{page}/").status_code == 200


def test_what_does_not_fit_is_said_at_the_form(shop: Shop, now) -> None:
    http = _as(operations(now))
    body = {
        "merchant": str(shop.merchant_id),
        "once": "x",
        "code": "odd",
        "name": "odd",
        "kind": "THRESHOLD",
        "off": "ten",
        "valid_days": "7",
        "policy_code": "standard",
    }

    wrong_amount = http.post("/admin/coupons/coupontemplate/do/create/", body)
    no_amount = http.post("/admin/coupons/coupontemplate/do/create/", {**body, "off": ""})

    assert wrong_amount.status_code == 200
    assert "like 19.90" in wrong_amount.content.decode()
    assert no_amount.status_code == 200
    assert "do not fit its kind" in no_amount.content.decode()


def test_other_merchants_coupons_are_not_seen(shop: Shop, now) -> None:
    other = make_shop(now)
    theirs = other.issue().coupon_id
    other.lock(theirs, "Q77")
    with pytest.raises(CouponRefused):
        other.lock(theirs, "Q78")
    owner = a_person(role=Role.MERCHANT_OWNER, now=now, merchant=Merchant.objects.get(pk=shop.merchant_id))
    http = _as(owner)

    assert http.get(f"/admin/coupons/usercoupon/{theirs}/change/").status_code == 404
    for query in ("", "?q=Q77", f"?q={theirs}", "?q=user-1"):
        page = http.get(f"/admin/coupons/usercoupon/{query}").content.decode()
        assert f"/admin/coupons/usercoupon/{theirs}/" not in page
    assert "Q78" not in http.get("/admin/coupons/couponrefusal/").content.decode()
    assert CouponRefusal.objects.count() == 1


@pytest.mark.parametrize("page", ["usercoupon", "refundcoupon", "couponrefusal", "coupontemplate"])
def test_a_list_costs_the_same_number_of_queries_whatever_its_length(shop: Shop, now, page: str) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    http = _as(operations(now))

    def grow(number: int) -> None:
        for _ in range(number):
            done = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))
            decide(shop, done.redemption_id)
            with pytest.raises(CouponRefused):
                shop.lock(done.coupon_id, "B")

    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert http.get(f"/admin/coupons/{page}/").status_code == 200
        return len(queries)

    grow(1)
    cost()
    few = cost()
    grow(8)

    assert cost() == few


def test_nobody_writes_through_the_admin(shop: Shop, now) -> None:
    coupon_id = shop.issue().coupon_id
    http = _as(operations(now))
    keys = IdempotencyKey.objects.count()

    http.post(f"/admin/coupons/usercoupon/{coupon_id}/change/", {"status": "USED", "state_version": "9"})

    assert state(coupon_id) == ("AVAILABLE", 1)
    assert IdempotencyKey.objects.count() == keys
