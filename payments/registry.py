"""From an account to the gateway that speaks for it. Gateways, and so their connections, are kept per
account.

What an account carries (``ChannelAccount.settings`` is readable JSON, its secrets are encrypted JSON):

wechat   settings  base_url (default: production), merchant_serial, public_key_id, certificate_mode (false),
                   platform_serials (the ids of platform_keys, by which a notify finds its account),
                   platform_keys [{"id": "PUB_KEY_ID_…" | certificate serial, "pem": "…"}], timeouts {connect,
                   read, …}
         secrets   private_key (PEM), api_v3_key (32 characters)
alipay   settings  gateway_url (default: production), seller_id, alipay_public_keys [PEM, …], timeouts; in
                   certificate mode root_certificate, app_certificate and, if wanted, alipay_certificates [PEM, …]
         secrets   app_private_key (PEM)
both     settings  bills (default: ["trade", "refund", "fundflow"]): those that the account has a right to
balance  nothing; the wallet is registered once with ``register_wallet``
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast
from uuid import UUID

from kernel import secrets
from payments.channels.alipay import PRODUCTION as ALIPAY_PRODUCTION
from payments.channels.alipay import AlipayConfig, AlipayGateway
from payments.channels.balance import BalanceConfig, BalanceGateway, Wallet
from payments.channels.transport import Timeouts
from payments.channels.wechat import PRODUCTION as WECHAT_PRODUCTION
from payments.channels.wechat import PlatformKey, WechatConfig, WechatGateway
from payments.gateway import Channel, Gateway

MAX_KEPT = 200
"""Gateways kept open; the one unused for longest is dropped first."""

Config = WechatConfig | AlipayConfig | BalanceConfig

_kept: OrderedDict[tuple[Channel, Config], Gateway] = OrderedDict()
_lock = threading.Lock()
_process = os.getpid()
_wallets: Callable[[UUID], Wallet] | None = None


class Account(Protocol):
    """What is needed of a ``ChannelAccount``."""

    channel: str
    merchant_id: UUID
    mchid: str
    app_id: str
    settings: dict[str, Any]
    secrets_encrypted: str


def build_gateway(channel: Channel | str, config: Config) -> Gateway:
    """The gateway of an account; the same object for an equal configuration within one process."""
    global _process
    key = (Channel(channel), config)
    with _lock:
        if _process != os.getpid():  # connections must not be shared with the process we were forked from
            _kept.clear()
            _process = os.getpid()
        gateway = _kept.get(key)
        if gateway is None:
            gateway = _kept[key] = _build(*key)
            if len(_kept) > MAX_KEPT:
                _kept.popitem(last=False)
        _kept.move_to_end(key)
        return gateway


def _build(channel: Channel, config: Config) -> Gateway:
    match channel, config:
        case Channel.WECHAT, WechatConfig():
            return WechatGateway(config)
        case Channel.ALIPAY, AlipayConfig():
            return AlipayGateway(config)
        case Channel.BALANCE, BalanceConfig():
            return BalanceGateway(wallet_for(config.merchant_id))
    raise ValueError(f"a {type(config).__name__} is not for {channel}")


def register_wallet(wallets: Callable[[UUID], Wallet]) -> None:
    """Whoever keeps the wallets says once, when it starts, how a merchant's are reached."""
    global _wallets
    _wallets = wallets


def wallet_for(merchant_id: UUID) -> Wallet:
    """A merchant's wallets. Raises ValueError when nobody keeps any."""
    if _wallets is None:
        raise ValueError("no wallet is registered")
    return _wallets(merchant_id)


def gateway_for(account: Account) -> Gateway:
    """The gateway of a stored account. Raises ValueError when its configuration is incomplete."""
    stored = json.loads(secrets.decrypt(account.secrets_encrypted)) if account.secrets_encrypted else {}
    return build_gateway(account.channel, config_of(account, stored))


def config_of(account: Account, stored: Mapping[str, str]) -> Config:
    """The driver's configuration from an account's readable settings and its decrypted secrets."""
    settings = account.settings
    try:
        match Channel(account.channel):
            case Channel.WECHAT:
                return WechatConfig(
                    mchid=account.mchid,
                    app_id=account.app_id,
                    merchant_serial=settings["merchant_serial"],
                    private_key=stored["private_key"],
                    api_v3_key=stored["api_v3_key"],
                    platform_keys=tuple(
                        PlatformKey(key_id=key["id"], pem=key["pem"]) for key in settings.get("platform_keys", ())
                    ),
                    public_key_id=settings.get("public_key_id", ""),
                    certificate_mode=bool(settings.get("certificate_mode", False)),
                    base_url=settings.get("base_url", WECHAT_PRODUCTION),
                    timeouts=_timeouts(settings),
                )
            case Channel.ALIPAY:
                return AlipayConfig(
                    app_id=account.app_id,
                    seller_id=settings.get("seller_id") or account.mchid,
                    app_private_key=stored["app_private_key"],
                    alipay_public_keys=tuple(
                        settings.get("alipay_public_keys", ())
                        if settings.get("root_certificate")
                        else settings["alipay_public_keys"]
                    ),
                    app_certificate=settings["app_certificate"] if settings.get("root_certificate") else "",
                    alipay_certificates=tuple(settings.get("alipay_certificates", ())),
                    root_certificate=settings.get("root_certificate", ""),
                    gateway_url=settings.get("gateway_url", ALIPAY_PRODUCTION),
                    timeouts=_timeouts(settings),
                )
            case Channel.BALANCE:
                return BalanceConfig(merchant_id=account.merchant_id)
    except KeyError as missing:
        raise ValueError(f"the {account.channel} account lacks {missing}") from missing


def _timeouts(settings: Mapping[str, Any]) -> Timeouts:
    return Timeouts(**cast("dict[str, float]", settings.get("timeouts", {})))
