"""The two shops of the demo: who they are, what they sell, who works there, what coupons they give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from orders.commands.create_quote import AskedLine


@dataclass(frozen=True)
class Goods:
    sku: str
    title: str
    price_fen: int
    stock: int
    kind: str = "physical"

    def line(self, qty: int = 1, *, line_discount_fen: int = 0) -> AskedLine:
        return AskedLine(
            sku=self.sku,
            title=self.title,
            kind=self.kind,
            unit_price_fen=self.price_fen,
            qty=qty,
            line_discount_fen=line_discount_fen,
        )


@dataclass(frozen=True)
class ShopFront:
    code: str
    name: str
    settings: dict[str, Any]
    goods: dict[str, Goods]
    coupons: list[dict[str, Any]] = field(default_factory=list)
    channels: tuple[str, ...] = ("wechat",)


NUTS = ShopFront(
    code="yunwu",
    name="云雾山货铺",
    settings={"freight_policy": "equal"},
    goods={
        "nut": Goods("NUT-500G", "每日坚果礼盒 500g", 10000, 120),
        "tea": Goods("TEA-250G", "明前龙井 250g", 20000, 80),
        "honey": Goods("HONEY-480G", "秦岭土蜂蜜 480g", 8800, 60),
        "mushroom": Goods("MUSH-300G", "古田干香菇 300g", 4590, 90),
        "date": Goods("DATE-1KG", "若羌灰枣 1kg", 5990, 150),
        "vinegar": Goods("VINEGAR-6Y", "六年陈酿老陈醋 500ml", 3990, 200),
    },
    coupons=[
        {"code": "TEA-300-50", "name": "山货满 300 减 50", "kind": "THRESHOLD", "threshold_fen": 30000,
         "off_fen": 5000, "valid_days": 30},
        {"code": "SPRING-88", "name": "春茶季 88 折，最多减 40", "kind": "PERCENT", "rate_bp": 1200,
         "cap_fen": 4000, "valid_days": 15},
    ],
)  # fmt: skip

HOME = ShopFront(
    code="muli",
    name="木里家居生活馆",
    settings={"freight_policy": "by_amount"},
    goods={
        "pan": Goods("PAN-28CM", "铸铁平底煎锅 28cm", 29900, 40),
        "cup": Goods("CUP-350", "手作粗陶马克杯 350ml", 6900, 150),
        "lamp": Goods("LAMP-D1", "竹编床头灯", 18800, 30),
        "towel": Goods("TOWEL-3", "长绒棉毛巾三条装", 7990, 200),
        "pillow": Goods("PILLOW-H", "荞麦壳护颈枕", 12900, 70),
        "class": Goods("CLASS-POT", "陶艺体验课（单次）", 16800, 0, kind="virtual"),
    },
    coupons=[
        {"code": "HOME-200-25", "name": "家居满 200 减 25", "kind": "THRESHOLD", "threshold_fen": 20000,
         "off_fen": 2500, "valid_days": 30},
    ],
    channels=("wechat", "alipay"),
)  # fmt: skip

PEOPLE = [
    ("merchant_owner", "yunwu-owner", "yunwu"),
    ("merchant_staff", "yunwu-staff", "yunwu"),
    ("merchant_owner", "muli-owner", "muli"),
    ("customer_service", "service", None),
    ("operations", "operations", None),
    ("finance", "finance", None),
    ("auditor", "auditor", None),
    ("platform_admin", "platform", None),
]
"""(role, login, merchant). The first one is the owner of the shop that the example buys from."""

BUYERS = {
    "lin": {"name": "林晓", "phone": "13812345678", "region": "浙江省杭州市西湖区", "street": "文三路 100 号 2 幢 301"},
    "chen": {"name": "陈一诺", "phone": "13987654321", "region": "上海市徐汇区", "street": "漕溪北路 18 号 1602"},
    "wang": {"name": "王建国", "phone": "13700001111", "region": "四川省成都市锦江区", "street": "东大街 55 号"},
    "zhao": {"name": "赵敏", "phone": "13622223333", "region": "广东省深圳市南山区", "street": "科苑路 8 号 A 座"},
    "sun": {"name": "孙悦", "phone": "13544445555", "region": "北京市朝阳区", "street": "望京西路 41 号"},
    "zhou": {"name": "周子轩", "phone": "13466667777", "region": "江苏省南京市鼓楼区", "street": "中山北路 223 号"},
}


def user_id(buyer: str) -> str:
    """A buyer's id at the mini-program."""
    return f"u-{buyer}"
