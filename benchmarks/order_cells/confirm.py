"""confirm_paid, as the callback's consumer calls it, and the same transaction in plain SQL."""

from collections.abc import Callable
from uuid import UUID

from benchmarks.coupon_cells.rows import NOW, sql_hash, sql_id
from benchmarks.coupon_cells.sql import EACH, EVENT, KEY, flat
from benchmarks.coupon_cells.work import Operation, number_of
from benchmarks.order_cells.rows import ORDER, PAYABLE, PAYMENT, id_of
from orders.actors import channel
from orders.commands.confirm_paid import confirm_paid
from payments.gateway import Channel, PaymentFact, PaymentState

ORDER_EVENT = """INSERT INTO outbox_event (id, name, version, merchant_id, subject, payload, created_at, state,
    attempts, available_at, last_error) VALUES (gen_random_uuid(), '{name}', 1, '{merchant}', 'O' || :k,
    jsonb_build_object('order_no', 'O' || :k, 'id', {id}, 'amount_fen', 26000), now(), 'PENDING', 0, now(), '');
"""


def confirm(*, first: int, stride: int) -> Callable[[int, int], Operation]:
    """The real command with a coupon: order, payment, redemption, evidence, three events, in one transaction."""

    def prepare(client: int, clients: int) -> Operation:
        actor = channel("wechat")

        def operation(index: int) -> object:
            number = number_of(client, index, first=first, stride=stride)
            fact = PaymentFact(
                channel=Channel.WECHAT,
                state=PaymentState.SUCCESS,
                out_trade_no=f"O{number}P1",
                trade_no=f"4200{number:024d}",
                amount_fen=PAYABLE,
                payer_paid_fen=PAYABLE,
                paid_at=NOW,
            )
            return confirm_paid(
                order_id=id_of(ORDER, number),
                payment_id=id_of(PAYMENT, number),
                fact=fact,
                now=NOW,
                actor=actor,
                payment_awaits=True,
            )

        return operation

    return prepare


def confirm_plain(merchant: UUID, *, first: int, stride: int) -> str:
    """The same rows as pgbench writes them, one prepared statement each."""
    order, payment = sql_id(ORDER), sql_id(PAYMENT)
    coupon, lease, operation, redemption = sql_id("8"), sql_id("a"), sql_id("e"), sql_id("f")
    values = {"merchant": merchant, "coupon": coupon, "version": 3}
    trade = "'4200' || lpad(:k::text, 24, '0')"
    return flat(
        EACH.format(first=first, stride=stride)
        + f"""
        BEGIN;
        UPDATE orders SET status = 10, version = version + 1, trade_no = {trade}, paid_channel = 'wechat',
            out_trade_no = 'O' || :k || 'P1', paid_at = now(), fulfilment = 'waiting',
            next_fulfil_at = now() + interval '60 seconds', next_check_at = NULL, coupon_state = 'redeemed'
            WHERE id = {order} AND status = 0 AND payable_fen = {PAYABLE};
        INSERT INTO order_status_log (order_id, command, from_status, to_status, from_version, to_version, actor_kind,
            actor, reason, evidence, at)
            VALUES ({order}, 'confirm_paid', 0, 10, 1, 2, 'channel', 'wechat', '',
            jsonb_build_object('payment_id', {payment}, 'trade_no', {trade}, 'amount_fen', {PAYABLE}), now());
        """
        + ORDER_EVENT.format(name="order.paid", merchant=merchant, id=order)
        + f"""
        UPDATE payment SET status = 'PAID', trade_no = {trade}, paid_at = now(), payer_paid_fen = {PAYABLE},
            version = version + 1 WHERE id = {payment} AND status = 'AWAITING' AND amount_fen = {PAYABLE};
        """
        + ORDER_EVENT.format(name="payment.succeeded", merchant=merchant, id=payment)
        + f"""
        SELECT e.coupon_id, e.lock_id, l.key_version, c.state_version
            FROM order_coupon e JOIN user_coupon c ON c.id = e.coupon_id JOIN coupon_lock l ON l.id = e.lock_id
            WHERE e.order_id = {order} AND c.status = 'LOCKED' AND c.lock_id = e.lock_id FOR UPDATE OF c;
        UPDATE user_coupon SET status = 'USED', state_version = state_version + 1, locked_order_no = NULL,
            lock_id = NULL, lock_token_hash = NULL, lease_expires_at = NULL, updated_at = now()
            WHERE id = {coupon} AND status = 'LOCKED' AND merchant_id = '{merchant}' AND locked_order_no = 'O' || :k
            AND lock_token_hash <> {sql_hash()} AND state_version = 2;
        INSERT INTO coupon_redemption (id, merchant_id, coupon_id, order_no, payment_no, lock_id, redeemed_at)
            VALUES ({redemption}, '{merchant}', {coupon}, 'O' || :k, 'O' || :k || 'P1', {lease}, now());
        INSERT INTO coupon_operation (id, merchant_id, coupon_id, command, from_version, from_status, to_version,
            to_status, order_no, lock_id, redemption_id, actor, reason, business_key, at)
            VALUES ({operation}, '{merchant}', {coupon}, 'REDEEM', 2, 'LOCKED', 3, 'USED', 'O' || :k, {lease},
            {redemption}, 'bench', '', 'plain:' || :k, now());
        UPDATE coupon_lock SET ended_by_id = {operation} WHERE coupon_id = {coupon} AND ended_by_id IS NULL;
        """
        + KEY.format(name="plain", status="USED", **values)
        + EVENT.format(name="coupon.redeemed", **values)
        + "COMMIT;"
    )
