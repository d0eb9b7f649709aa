"""What happened in the two shops during the last week: an order in every state, returns in every state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from demo import quarrels
from demo.catalogue import BUYERS, HOME, NUTS, user_id
from demo.shop import Shop, day_at
from kernel.clock import channel_day
from orders.commands.settle_charge import settle_charge
from orders.models import Order
from orders.tender import Answer, Heard, ask
from payments.models import Payment
from payments.registry import gateway_for

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@dataclass(frozen=True)
class Week:
    """The shops and the present moment; `day(3, 14)` is 14:00 in Shanghai three days ago."""

    yunwu: Shop
    muli: Shop
    now: datetime

    def day(self, ago: int, hour: int, minute: int = 0) -> datetime:
        return day_at(channel_day(self.now) - timedelta(days=ago), hour, minute)


Story = Callable[[Week], None]
STORIES: list[Story] = []


def story(tell: Story) -> Story:
    STORIES.append(tell)
    return tell


def buy(shop: Shop, buyer: str, *lines, now: datetime, pay: bool = True, **more) -> Order:
    return shop.buy(user_id(buyer), list(lines), address=BUYERS[buyer], now=now, pay=pay, **more)


@story
def completed(week: Week) -> None:
    shop, goods = week.yunwu, NUTS.goods
    order = buy(shop, "wang", goods["date"].line(2), goods["vinegar"].line(), freight_fen=800, now=week.day(6, 10, 12))
    shop.ship(order, now=week.day(6, 17))
    shop.sign(order, now=week.day(4, 11))
    shop.confirm(order, now=week.day(4, 20))


@story
def nut_and_tea(week: Week) -> None:
    """100 + 200, 50 off from 300, freight 10 split equally: 260 paid; 171.67 and 88.33 back, and the coupon."""
    shop, goods = week.yunwu, NUTS.goods
    coupon = shop.give_coupon(user_id("lin"), "TEA-300-50", now=week.day(6, 9))
    order = buy(
        shop,
        "lin",
        goods["nut"].line(),
        goods["tea"].line(),
        coupon_id=coupon,
        freight_fen=1000,
        now=week.day(5, 20, 31),
    )
    shop.ship(order, now=week.day(5, 22))
    shop.sign(order, now=week.day(4, 15, 20))
    for line_no, ago in ((2, 3), (1, 2)):
        claim = shop.claim(order, line_no=line_no, text="包装破损，漏气受潮", now=week.day(ago, 8, 30))
        claim = shop.approve(claim, now=week.day(ago, 9, 10))
        claim = shop.send_back(claim, now=week.day(ago, 10))
        claim = shop.receive(claim, now=week.day(ago, 15))
        shop.refund(claim, now=week.day(ago, 15, 2))


@story
def waiting_for_audit(week: Week) -> None:
    shop, goods = week.yunwu, NUTS.goods
    order = buy(shop, "chen", goods["honey"].line(3), freight_fen=600, now=week.day(5, 13, 5))
    shop.ship(order, now=week.day(5, 18))
    shop.sign(order, now=week.day(3, 12))
    shop.claim(order, line_no=1, text="有一瓶结晶严重，和描述不符", reason="not_as_described", now=week.now - 41 * HOUR)


@story
def on_its_way_back(week: Week) -> None:
    shop, goods = week.yunwu, NUTS.goods
    coupon = shop.give_coupon(user_id("zhao"), "SPRING-88", now=week.day(4, 9))
    order = buy(shop, "zhao", goods["tea"].line(2), coupon_id=coupon, now=week.day(4, 9, 20))
    shop.ship(order, now=week.day(4, 16))
    shop.sign(order, now=week.day(2, 14))
    claim = shop.claim(order, line_no=1, reason="changed_mind", text="买多了，退一罐", now=week.day(2, 19))
    shop.approve(claim, now=week.day(1, 9, 30))


@story
def to_be_inspected(week: Week) -> None:
    shop, goods = week.yunwu, NUTS.goods
    order = buy(shop, "sun", goods["mushroom"].line(2), freight_fen=500, now=week.day(5, 21))
    shop.ship(order, now=week.day(4, 10))
    shop.sign(order, now=week.day(3, 9, 40))
    claim = shop.claim(order, line_no=1, qty=2, reason="quality", text="有霉味", now=week.day(3, 10))
    claim = shop.approve(claim, now=week.day(3, 11))
    shop.send_back(claim, now=week.day(2, 17))


@story
def refund_before_shipping(week: Week) -> None:
    shop, goods = week.yunwu, NUTS.goods
    order = buy(shop, "zhou", goods["nut"].line(2), now=week.now - 9 * HOUR)
    shop.claim(order, line_no=1, type=1, qty=1, reason="ordered_wrong", text="拍错数量了", now=week.now - 2 * HOUR)


@story
def to_be_shipped(week: Week) -> None:
    buy(
        week.yunwu,
        "lin",
        NUTS.goods["tea"].line(),
        NUTS.goods["honey"].line(),
        freight_fen=600,
        now=week.now - 3 * HOUR,
    )


@story
def unpaid(week: Week) -> None:
    coupon = week.muli.give_coupon(user_id("chen"), "HOME-200-25", now=week.now - 6 * HOUR)
    buy(week.muli, "chen", HOME.goods["lamp"].line(), HOME.goods["cup"].line(), coupon_id=coupon,
        now=week.now - 4 * MINUTE, pay=False)  # fmt: skip


@story
def timed_out(week: Week) -> None:
    order = buy(week.yunwu, "wang", NUTS.goods["vinegar"].line(4), now=week.day(2, 16), pay=False)
    week.yunwu.time_out(order, now=week.day(2, 19))


@story
def cancelled(week: Week) -> None:
    order = buy(week.yunwu, "chen", NUTS.goods["date"].line(), now=week.day(2, 11, 3), pay=False)
    week.yunwu.cancel(order, reason="地址填错了", now=week.day(2, 11, 9))


@story
def paid_after_cancelling(week: Week) -> None:
    """The anomaly: the buyer cancels while the payment is on its way. It stays cancelled and the money goes back."""
    shop = week.yunwu
    order = buy(shop, "zhao", NUTS.goods["honey"].line(), now=week.day(2, 20, 1), pay=False)
    payment = shop.place(order, now=week.day(2, 20, 2))
    shop.cancel(order, reason="不想要了", now=week.day(2, 20, 3))
    paid_late(shop, payment, now=week.day(2, 20, 4))
    shop.refund_charges(order, now=week.day(2, 20, 6))


def paid_late(shop: Shop, payment: Payment, *, now: datetime) -> None:
    """Money that arrives at the channel for an order that has ended."""
    if shop.simulator is not None:
        shop.simulator.clock(to=now.isoformat())
        shop.simulator.pay(payment.out_trade_no, notify=False, force=True)
        heard = ask(payment, now=now)
    else:
        heard = Heard(answer=Answer.PAID_EQUAL, fact=shop.paid_fact(payment, now=now))
    settle_charge(payment_id=payment.pk, heard=heard, now=now)
    shop.work_off(now=now + timedelta(seconds=1))


@story
def over_midnight(week: Week) -> None:
    """A refund that the channel accepts before midnight and finishes after: a timing item, no difference."""
    shop = week.yunwu
    order = buy(shop, "sun", NUTS.goods["honey"].line(), freight_fen=600, now=week.day(4, 12))
    claim = shop.claim(order, line_no=1, type=1, reason="changed_mind", now=week.day(3, 23, 40))
    claim = shop.approve(claim, now=week.day(3, 23, 56))
    shop.refund(claim, now=week.day(3, 23, 58), done_at=week.day(2, 0, 3))


@story
def refund_closed_by_the_channel(week: Week) -> None:
    shop = week.yunwu
    order = buy(shop, "wang", NUTS.goods["mushroom"].line(), now=week.day(3, 8, 45))
    claim = shop.claim(order, line_no=1, type=1, reason="changed_mind", now=week.day(2, 9))
    claim = shop.approve(claim, now=week.day(2, 9, 20))
    shop.refund(claim, to="CLOSED", now=week.day(2, 9, 22))


@story
def rejected_and_withdrawn(week: Week) -> None:
    shop = week.yunwu
    order = buy(shop, "zhou", NUTS.goods["date"].line(), NUTS.goods["vinegar"].line(), now=week.day(6, 18, 20))
    shop.ship(order, now=week.day(5, 10))
    shop.sign(order, now=week.day(4, 10))
    claim = shop.claim(order, line_no=1, reason="not_as_described", text="颗粒偏小", now=week.day(3, 20))
    shop.reject(claim, reason="商品规格与页面一致，详见质检照片", now=week.day(2, 10))
    claim = shop.claim(order, line_no=2, reason="changed_mind", now=week.day(3, 20, 10))
    shop.take_back(claim, now=week.day(3, 21))


@story
def regular_customer(week: Week) -> None:
    """500 points used, 3 % and 1 % commission on the tea, points earned on completion; the honey comes back."""
    shop, goods, buyer = week.yunwu, NUTS.goods, user_id("sun")
    quarrels.earn(shop, points_per_yuan=1, now=week.day(6, 8))
    quarrels.give_points(shop, buyer, 800, now=week.day(6, 8, 1))
    order = buy(shop, "sun", goods["tea"].line(), goods["honey"].line(), points=500, now=week.day(6, 11))
    quarrels.recommend(shop, order, line_no=1, rates={"tuan-li": 300, "tuan-wu": 100}, now=week.day(6, 11, 5))
    shop.ship(order, now=week.day(6, 16))
    shop.sign(order, now=week.day(5, 10))
    shop.confirm(order, now=week.day(5, 20))
    claim = shop.claim(order, line_no=2, reason="quality", text="瓶盖有渗漏", now=week.day(4, 9))
    claim = shop.approve(claim, now=week.day(4, 10))
    claim = shop.send_back(claim, now=week.day(4, 11))
    claim = shop.receive(claim, defect=1, now=week.day(3, 15))
    shop.refund(claim, now=week.day(3, 15, 2))


@story
def arbitrated(week: Week) -> None:
    """Refused by the merchant, halved by the platform: the award is a claim of its own."""
    shop = week.yunwu
    order = buy(shop, "chen", NUTS.goods["vinegar"].line(2), now=week.day(6, 13))
    shop.ship(order, now=week.day(6, 18))
    shop.sign(order, now=week.day(5, 9))
    claim = shop.claim(order, line_no=1, qty=2, reason="not_as_described", text="年份不符", now=week.day(4, 12))
    claim = shop.reject(claim, reason="瓶身标注六年陈酿，附生产批号", now=week.day(4, 15))
    case = quarrels.call_the_platform(
        shop, claim, wish="退一半货款", answer="批号可查，愿意提供检测报告", now=week.day(3, 10)
    )
    award = quarrels.decide(shop, case, goods_fen=3990, why="标签易误解，退还一半货款，商品归买家", now=week.day(2, 10))
    shop.refund(award, now=week.day(2, 10, 2))


@story
def quarrel_to_decide(week: Week) -> None:
    shop = week.yunwu
    order = buy(shop, "zhao", NUTS.goods["date"].line(), now=week.day(6, 15))
    shop.ship(order, now=week.day(6, 19))
    shop.sign(order, now=week.day(5, 12))
    claim = shop.claim(order, line_no=1, reason="quality", text="枣子发硬", now=week.day(2, 9))
    claim = shop.reject(claim, reason="灰枣特性，详情页已说明", now=week.day(1, 9))
    quarrels.call_the_platform(shop, claim, wish="要求全额退款", answer="详情页有口感说明", now=week.day(1, 20))


@story
def home_exchanged(week: Week) -> None:
    """Towels of 79.90 for a cup of 69.00: the replacement is a line of its own, 10.90 go back."""
    shop = week.muli
    order = buy(shop, "wang", HOME.goods["towel"].line(), now=week.day(6, 10))
    shop.ship(order, now=week.day(6, 15))
    shop.sign(order, now=week.day(5, 11))
    claim = shop.claim(
        order,
        line_no=1,
        type=3,
        reason="ordered_wrong",
        text="想换杯子",
        instead=HOME.goods["cup"],
        now=week.day(5, 12),
    )
    claim = shop.approve(claim, now=week.day(5, 14))
    claim = shop.send_back(claim, now=week.day(5, 18))
    claim = quarrels.receive_for_exchange(shop, claim, now=week.day(3, 10))
    claim = quarrels.send_replacement(shop, claim, now=week.day(3, 16))
    difference = quarrels.accept_replacement(shop, claim, now=week.day(1, 12))
    if difference is not None:
        shop.refund(difference, now=week.day(1, 12, 2))


@story
def home_delivered(week: Week) -> None:
    shop = week.muli
    order = buy(shop, "zhou", HOME.goods["pan"].line(), freight_fen=1200, now=week.day(5, 19, 10))
    shop.ship(order, now=week.day(4, 11))
    shop.sign(order, now=week.day(2, 18))


@story
def home_by_alipay(week: Week) -> None:
    """Paid by Alipay, one of two cups sent back: its refund stands in Alipay's bill."""
    shop = week.muli
    order = buy(shop, "zhou", HOME.goods["cup"].line(2), freight_fen=600, pay_method="alipay", now=week.day(4, 20, 20))
    shop.ship(order, now=week.day(3, 10))
    shop.sign(order, now=week.day(2, 11))
    claim = shop.claim(order, line_no=1, reason="damaged", text="杯沿有缺口", now=week.day(2, 12))
    claim = shop.approve(claim, now=week.day(2, 13))
    claim = shop.send_back(claim, now=week.day(2, 15))
    claim = shop.receive(claim, defect=1, now=week.day(1, 10))
    shop.refund(claim, now=week.day(1, 10, 2))
    buy(shop, "lin", HOME.goods["towel"].line(2), pay_method="alipay", now=week.day(1, 12, 40))


@story
def home_virtual(week: Week) -> None:
    buy(week.muli, "lin", HOME.goods["class"].line(), now=week.day(3, 21, 15))


@story
def home_defect(week: Week) -> None:
    shop = week.muli
    coupon = shop.give_coupon(user_id("wang"), "HOME-200-25", now=week.day(6, 12))
    order = buy(
        shop, "wang", HOME.goods["lamp"].line(), HOME.goods["cup"].line(2), coupon_id=coupon, freight_fen=1500,
        now=week.day(5, 12, 30),
    )  # fmt: skip
    shop.ship(order, now=week.day(5, 17))
    shop.sign(order, now=week.day(3, 13))
    claim = shop.claim(order, line_no=1, reason="damaged", text="灯罩裂了一道", now=week.day(2, 8))
    claim = shop.approve(claim, now=week.day(2, 9))
    claim = shop.send_back(claim, now=week.day(2, 12))
    claim = shop.receive(claim, defect=1, now=week.day(1, 14))
    shop.refund(claim, now=week.day(1, 14, 3))


@story
def home_on_the_way(week: Week) -> None:
    order = buy(week.muli, "sun", HOME.goods["pillow"].line(), freight_fen=800, now=week.day(2, 22, 5))
    week.muli.ship(order, now=week.day(1, 16))


@story
def home_waiting_for_audit(week: Week) -> None:
    shop = week.muli
    order = buy(shop, "chen", HOME.goods["cup"].line(4), freight_fen=900, now=week.day(5, 15, 45))
    shop.ship(order, now=week.day(4, 9))
    shop.sign(order, now=week.day(2, 10))
    shop.claim(order, line_no=1, qty=2, reason="wrong_item", text="颜色发错了，要的是青釉", now=week.now - 20 * HOUR)


@story
def refunded_past_us(week: Week) -> None:
    """The finding: somebody refunded 12 yuan of freight at the channel's own site, not through Quits."""
    shop = week.muli
    if shop.simulator is None:
        return
    unrefunded = Payment.objects.filter(merchant_id=shop.merchant_id, channel="wechat", status="PAID", refund_count=0)
    payment = unrefunded.select_related("account").order_by("paid_at").first()
    if payment is None or payment.account is None:
        return
    number = f"HAND-{channel_day(week.day(1, 11)):%Y%m%d}-1"
    shop.simulator.clock(to=week.day(1, 11, 15).isoformat())
    gateway_for(payment.account).refund(
        refund_no=number,
        out_trade_no=payment.out_trade_no,
        amount_fen=1200,
        total_fen=payment.amount_fen,
        reason="补偿运费",
        notify_url="https://example.invalid/none",
        now=week.day(1, 11, 15),
    )
    shop.simulator.settle(number)


@story
def today(week: Week) -> None:
    buy(week.muli, "zhao", HOME.goods["towel"].line(3), freight_fen=700, now=week.now - 75 * MINUTE)
