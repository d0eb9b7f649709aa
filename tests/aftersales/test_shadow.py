"""The shadow run: a second algorithm beside the live one, its differences kept, its switch locked until proven."""

from datetime import timedelta

import pytest

from aftersales.commands.switch_algorithm import ShadowNotProven, report_of, switch_algorithm
from aftersales.drafts import Item
from aftersales.models import AfterSalesSettings, ShadowDay, ShadowDifference
from aftersales.preview import preview_refund
from kernel.errors import InvalidInput, NotFound, VersionConflict
from kernel.numbers import uuid7
from tests.aftersales.build import BUYER, Line, a_merchant, a_paid_order

pytestmark = pytest.mark.django_db


@pytest.fixture
def merchant(now):
    return a_merchant(now)


def begin(merchant, now, to: str = "front-loaded-1"):
    return switch_algorithm(merchant_id=merchant.pk, to=to, now=now)


def test_only_the_live_one_has_effect_and_differences_are_kept(merchant, now):
    begin(merchant, now)
    paid = a_paid_order(now, Line(1000, qty=1, line_discount=0), Line(1, qty=3, line_discount=1), merchant=merchant)
    odd = a_paid_order(now, Line(500, qty=2, line_discount=0), coupon=1, merchant=merchant)
    assert paid.apply(1).goods_fen == 1000
    assert odd.apply(1).goods_fen == 500
    assert odd.apply(1).goods_fen == 499
    day = ShadowDay.objects.get()
    assert (day.live, day.shadow, day.calculations) == ("ordinals-1", "front-loaded-1", 3)


def test_a_difference_names_both_figures(merchant, now):
    begin(merchant, now)
    paid = a_paid_order(now, Line(1000, qty=3, line_discount=2000), merchant=merchant)
    assert paid.apply(1).goods_fen == 333
    row = ShadowDifference.objects.get()
    assert (row.live_fen, row.shadow_fen, row.step, row.ordinals) == (333, 334, "apply", [1])
    assert (ShadowDay.objects.get().calculations, ShadowDay.objects.get().differences) == (1, 1)


def test_a_preview_is_a_calculation_too(merchant, now):
    begin(merchant, now)
    paid = a_paid_order(now, Line(1000, qty=3, line_discount=2000), merchant=merchant)
    preview = preview_refund(
        merchant_id=merchant.pk,
        order_no=paid.order.order_no,
        user_id=BUYER,
        items=[Item(line_no=1, qty=1, type=1, reason_code="quality")],
        now=now,
    )
    assert preview.refund_fen == 333
    row = ShadowDifference.objects.get()
    assert (row.live_fen, row.shadow_fen, row.step) == (333, 334, "preview")
    assert ShadowDay.objects.get().calculations == 1


def test_nothing_runs_beside_unless_it_was_begun(merchant, now):
    a_paid_order(now, Line(1000, qty=3, line_discount=2000), merchant=merchant).apply(1)
    assert not ShadowDay.objects.exists()


def proven(merchant, now, *, calculations: int = 1000, differences: int = 0) -> None:
    begin(merchant, now)
    ShadowDay.objects.create(
        merchant=merchant,
        live="ordinals-1",
        shadow="front-loaded-1",
        on_date=now.date() + timedelta(days=1),
        calculations=calculations,
        differences=differences,
    )


@pytest.mark.parametrize(
    ("days", "calculations", "differences"), [(6, 1000, 0), (7, 999, 0), (7, 1000, 1)], ids=["days", "count", "differs"]
)
def test_it_does_not_go_live_unproven(merchant, now, days, calculations, differences):
    proven(merchant, now, calculations=calculations, differences=differences)
    with pytest.raises(ShadowNotProven):
        switch_algorithm(merchant_id=merchant.pk, to="live", now=now + timedelta(days=days))
    assert AfterSalesSettings.objects.get().algorithm == "ordinals-1"


def test_proven_it_goes_live_for_new_lines_and_a_line_keeps_what_it_began_with(merchant, now):
    paid = a_paid_order(now, Line(1000, qty=3, line_discount=2000), merchant=merchant)
    assert paid.apply(1).goods_fen == 333
    proven(merchant, now)
    assert report_of(AfterSalesSettings.objects.get()).calculations == 1000
    done = switch_algorithm(merchant_id=merchant.pk, to="live", now=now + timedelta(days=7))
    assert (done.algorithm, done.shadow_algorithm) == ("front-loaded-1", "")
    assert [paid.apply(1).goods_fen for _ in range(2)] == [334, 333]
    fresh = a_paid_order(now, Line(1000, qty=3, line_discount=2000), merchant=merchant)
    assert [fresh.apply(1).goods_fen for _ in range(3)] == [334, 333, 333]


def test_the_switch_knows_what_it_may_switch(merchant, now):
    for unknown in ("nonsense", "ordinals-1"):
        with pytest.raises(InvalidInput):
            begin(merchant, now, unknown)
    with pytest.raises(NotFound):
        switch_algorithm(merchant_id=uuid7(), to="front-loaded-1", now=now)
    begin(merchant, now)
    with pytest.raises(VersionConflict):
        switch_algorithm(merchant_id=merchant.pk, to="", expected_version=1, now=now)
    assert switch_algorithm(merchant_id=merchant.pk, to="", expected_version=2, now=now).shadow_algorithm == ""
