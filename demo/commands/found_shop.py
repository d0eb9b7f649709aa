"""A shop of the demo: the merchant with its API client, return policy, coupons, stock and a buyer's wallet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from coupons.commands.create_policy import create_policy, publish_policy
from coupons.commands.create_template import create_template
from coupons.models import CouponTemplate, ReturnPolicy
from demo.access import CLIENT_NAME
from demo.catalogue import ShopFront, user_id
from ledgers.commands.adjust_stock import adjust_stock
from ledgers.commands.top_up_wallet import top_up_wallet
from ledgers.models import StockItem
from merchants.commands.create_client import create_client
from merchants.commands.create_merchant import create_merchant
from merchants.models import ApiClient, Merchant, Scope
from payments.commands.save_account import save_account
from payments.models import ChannelAccount

RULES = {"on_full_refund": "RETURN"}


@dataclass(frozen=True)
class Founded:
    merchant_id: UUID


def found_shop(*, front: ShopFront, now: datetime) -> Founded:
    """Each part is made once, whoever asks again."""
    merchant = Merchant.objects.filter(code=front.code).first()
    merchant_id = (
        merchant.pk
        if merchant is not None
        else create_merchant(code=front.code, name=front.name, now=now, **front.settings).merchant_id
    )
    if not ApiClient.objects.filter(merchant_id=merchant_id, name=CLIENT_NAME).exists():
        create_client(merchant_id=merchant_id, name=CLIENT_NAME, scopes=list(Scope.values), now=now)
    if not ReturnPolicy.objects.filter(merchant_id=merchant_id, code="standard").exists():
        policy = create_policy(merchant_id=merchant_id, code="standard", rules=RULES, now=now, actor="demo")
        publish_policy(merchant_id=merchant_id, policy_id=policy.policy_id, now=now)
    for coupon in front.coupons:
        if not CouponTemplate.objects.filter(merchant_id=merchant_id, code=coupon["code"]).exists():
            create_template(merchant_id=merchant_id, policy_code="standard", now=now, actor="demo", **coupon)
    for goods in front.goods.values():
        if goods.stock and not StockItem.objects.filter(merchant_id=merchant_id, sku=goods.sku).exists():
            adjust_stock(
                merchant_id=merchant_id,
                sku=goods.sku,
                title=goods.title,
                delta=goods.stock,
                business_key=f"opening:{goods.sku}",
                reference="opening",
                now=now,
            )
    if not ChannelAccount.objects.filter(merchant_id=merchant_id, channel="balance").exists():
        save_account(merchant_id=merchant_id, channel="balance", mchid="", app_id="", name=front.name, now=now)
    top_up_wallet(
        merchant_id=merchant_id, user_id=user_id("lin"), amount_fen=50000, reference="opening", note="demo", now=now
    )
    return Founded(merchant_id)
