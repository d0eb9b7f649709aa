"""Named defects. Each is a mistake that somebody could make in a minute, with the tests that have to notice it.

`old` stands exactly once in its file (tests/mutants/test_catalogue.py), so a mutant cannot rot unseen. A defect of the
schema is SQL that is executed on the test database instead.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A defect in one file: `old` becomes `new`, and one of `tests` (pytest's arguments) turns red."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class SchemaMutant:
    """A guarantee of the database that is gone. `names` are the constraint or trigger, as the migrations call it."""

    name: str
    names: str
    sql: str
    tests: tuple[str, ...]


KERNEL = (
    Mutant(
        "idempotency: the hash of the request is ignored",
        "kernel/idempotency.py",
        "    if row.request_hash != key.request_hash:\n",
        "    if row is key:\n",
        (
            "tests/kernel/test_idempotency.py",
            "tests/coupons/test_redeem_coupon.py::test_a_key_of_another_request_is_refused",
        ),
    ),
    Mutant(
        "state machine: guards are left out of the statement",
        "kernel/statemachine.py",
        "        where += [self._condition(edge.model, name, value) for name, value in edge.guards.items()]\n",
        "",
        ("tests/kernel/test_statemachine.py",),
    ),
    Mutant(
        "state machine: the event of an edge is not written",
        "kernel/statemachine.py",
        "        writes = [*self.edge.writes, *([self.edge.emit] if self.edge.emit else [])]\n",
        "        writes = [*self.edge.writes]\n",
        ("tests/kernel/test_statemachine.py::test_one_statement_moves_the_row_and_leaves_log_and_event",),
    ),
    Mutant(
        "inbox: a consumer works without its unique row",
        "kernel/inbox.py",
        "                WHERE m.state = 'FAILED' OR (m.state = 'RUNNING' AND m.available_at <= %(now)s)\n",
        "",
        ("tests/kernel/test_outbox_inbox.py::test_an_event_reaches_every_consumer_once_whatever_is_delivered",),
    ),
    Mutant(
        "inbox: a failed consumer keeps its effect",
        "kernel/inbox.py",
        "            with transaction.atomic():\n                if _claim",
        "            if True:\n                if _claim",
        ("tests/kernel/test_outbox_inbox.py::test_a_failing_consumer_is_rolled_back_retried_and_stops_no_other",),
    ),
    Mutant(
        "outbox: a relay takes what another one has taken",
        "kernel/outbox.py",
        "    SELECT ctid FROM outbox_event WHERE state = 'PENDING' AND (available_at <= %(now)s OR attempts = 0)\n",
        "    SELECT ctid FROM outbox_event WHERE (available_at <= %(now)s OR attempts = 0)\n",
        ("tests/kernel/test_outbox_inbox.py",),
    ),
    Mutant(
        "money: shares are cut, the odd fen is lost",
        "kernel/money.py",
        "        shares[index] += 1\n",
        "        shares[index] += 0\n",
        (
            "tests/kernel/test_money.py",
            "tests/orders/test_allocation.py::test_shares_are_exact_and_no_line_is_negative",
        ),
    ),
    Mutant(
        "money: a unit is worth its part, rounded down",
        "kernel/money.py",
        "    return (2 * total_fen * quantity + units) // (2 * units)\n",
        "    return total_fen // units * quantity\n",
        ("tests/kernel/test_money.py", "tests/aftersales/test_amount_cases.py"),
    ),
)

COUPONS = (
    Mutant(
        "coupons: the lease's token is not compared",
        "coupons/ledger.py",
        '    "lock_token_hash": P("token_hash"),\n}\n',
        "}\n",
        ("tests/coupons/test_redeem_coupon.py::test_what_does_not_prove_ownership_is_refused",),
    ),
    Mutant(
        "coupons: the version under a lease is not compared",
        "coupons/ledger.py",
        '    "state_version": P("expected_version"),\n    "locked_order_no"',
        '    "locked_order_no"',
        ("tests/coupons/test_redeem_coupon.py::test_what_does_not_prove_ownership_is_refused",),
    ),
    Mutant(
        "coupons: a coupon past its validity is locked",
        "coupons/commands/lock_coupon.py",
        "AND t.valid_until >",
        "AND t.valid_until <>",
        ("tests/coupons/test_lock_coupon.py::test_refusals_write_nothing_but_their_evidence",),
    ),
    Mutant(
        "coupons: the limit per user is not counted",
        "coupons/commands/issue_coupon.py",
        " DO UPDATE SET issued = c.issued + 1 WHERE c.issued < %s RETURNING",
        " DO UPDATE SET issued = c.issued + 1 WHERE c.issued <> -%s RETURNING",
        ("tests/coupons/test_issue_coupon.py::test_a_limit_per_user",),
    ),
    Mutant(
        "coupons: a partial refund returns the coupon",
        "coupons/return_policy.py",
        "    if not facts.order_wholly_refunded:\n",
        "    if facts.order_wholly_refunded is None:\n",
        ("tests/coupons/test_return_coupon.py::test_only_the_refund_that_completes_the_order_returns_the_coupon",),
    ),
    Mutant(
        "coupons: a return without a decision to return",
        "coupons/commands/return_coupon.py",
        "        if not RefundCoupon.objects.filter(\n            pk=decision_id, redemption=redemption, decision=ReturnDecision.RETURN\n        ).exists():\n",
        "        if not RefundCoupon.objects.filter(pk=decision_id).exists():\n",
        ("tests/coupons/test_return_coupon.py::test_a_return_needs_a_decision_to_return",),
    ),
    SchemaMutant(
        "schema: a coupon may have two redemptions in force",
        "coupon_has_one_redemption_in_force",
        "DROP INDEX coupon_has_one_redemption_in_force",
        ("tests/coupons/test_guarantees.py::test_2_one_redemption_in_force",),
    ),
    SchemaMutant(
        "schema: the coupon ledger may be rewritten",
        "append_only_update",
        "DO $$ DECLARE found text; BEGIN FOR found IN SELECT tgname FROM pg_trigger WHERE tgrelid ="
        " 'coupon_operation'::regclass AND tgname LIKE 'pgtrigger_append_only%' LOOP"
        " EXECUTE format('DROP TRIGGER %I ON coupon_operation', found); END LOOP; END $$",
        ("tests/coupons/test_guarantees.py::test_5_a_ledger_row_is_final",),
    ),
)

ORDERS = (
    Mutant(
        "orders: an order is confirmed for any amount",
        "orders/commands/confirm_paid.py",
        '        guards={"payable_fen": P("amount_fen")},\n',
        "        guards={},\n",
        ("tests/orders/test_confirm_paid.py::test_another_amount_moves_nothing",),
    ),
    Mutant(
        "orders: an order closed by a person is reopened too",
        "orders/commands/settle_charge.py",
        "        return Situation.CLOSED_REOPENABLE if order.closed_reason in Order.MAY_REOPEN else Situation.CLOSED_FOR_GOOD\n",
        "        return Situation.CLOSED_REOPENABLE\n",
        ("tests/orders/test_cases.py::test_c33_only_a_timeout_is_reopened",),
    ),
    Mutant(
        "orders: what was refunded is reopened (the guard in the statement)",
        "orders/commands/settle_charge.py",
        '        "refund_decided_at": None,\n        "newer": NO_NEWER,\n',
        '        "newer": NO_NEWER,\n',
        ("tests/orders/test_cases.py", "tests/orders/test_coordinate_coupon.py"),
    ),
    Mutant(
        "orders: a newer order for the same cart does not stop the reopening",
        "orders/commands/settle_charge.py",
        '        "newer": NO_NEWER,\n    },\n',
        "    },\n",
        ("tests/orders/test_coordinate_coupon.py::test_a_newer_order_for_the_same_cart_stops_the_reopening",),
    ),
    Mutant(
        "orders: a quote is taken after its time",
        "orders/commands/create_order.py",
        "    if quote.state == Quote.State.EXPIRED or quote.expires_at <= now:\n",
        "    if quote.state == Quote.State.EXPIRED:\n",
        ("tests/orders/test_create_order.py::test_refusals_write_nothing",),
    ),
    Mutant(
        "orders: the freight is paid twice",
        "orders/allocation.py",
        "        return self.net_fen + self.freight_fen\n",
        "        return self.net_fen + 2 * self.freight_fen\n",
        ("tests/orders/test_allocation.py", "tests/orders/test_create_quote.py::test_success_names_every_share"),
    ),
    Mutant(
        "orders: a discount may exceed what is left of the goods",
        "orders/allocation.py",
        "    if not 0 <= discount_fen <= sum(room):\n",
        "    if not 0 <= discount_fen:\n",
        ("tests/orders/test_allocation.py::test_a_discount_above_what_is_left_is_refused",),
    ),
    Mutant(
        "orders: an order is ended without asking the channel",
        "orders/commands/close_order.py",
        "        if heard.answer is not Answer.OVER:\n",
        "        if heard.answer is Answer.NOT_FOUND:\n",
        ("tests/orders/test_close_order.py::test_paid_at_the_channel_is_settled_instead",),
    ),
    Mutant(
        "orders: stock of an ended order is not given back",
        "orders/commands/_end_order.py",
        "    release_stock_of(order, now=now)\n",
        "",
        ("tests/orders/test_close_order.py::test_success_gives_everything_back",),
    ),
    Mutant(
        "orders: a unit under a claim is shipped",
        "orders/commands/ship_order.py",
        "    taken = {*line.shipped_ordinals, *line.held_ordinals, *line.refunded_ordinals}\n",
        "    taken = {*line.shipped_ordinals, *line.refunded_ordinals}\n",
        ("tests/orders/test_ship_order.py::test_units_under_a_claim_stay_and_the_rest_goes",),
    ),
    Mutant(
        "orders: an order whose coupon is gone is shipped all the same",
        "orders/commands/ship_order.py",
        "    if order.coupon_state not in Order.COUPON_IN_ORDER:\n",
        "    if order.coupon_state is None:\n",
        ("tests/orders/test_ship_order.py::test_an_order_whose_coupon_is_gone_is_never_shipped",),
    ),
    Mutant(
        "orders: nobody is told that an order was made",
        "orders/commands/create_order.py",
        '        name="order.created",\n',
        '        name="order.noticed",\n',
        ("tests/orders/test_create_order.py::test_success_writes_order_lines_log_evidence_stock_and_event",),
    ),
)

PAYMENTS = (
    Mutant(
        "refunds: more goes back than was paid (the guard in the statement)",
        "payments/commands/request_refund.py",
        'FITS = Sql("t.refund_committed_fen + %(amount_fen)s::bigint <= t.amount_fen")\n',
        'FITS = Sql("t.refund_committed_fen + %(amount_fen)s::bigint > 0")\n',
        ("tests/payments/test_request_refund.py",),
    ),
    Mutant(
        "refunds: the same owner is paid twice",
        "payments/commands/request_refund.py",
        '    "NOT EXISTS (SELECT 1 FROM refund_request r WHERE r.payment_id = t.id"\n',
        '    "(true OR NOT EXISTS (SELECT 1 FROM refund_request r WHERE r.payment_id = t.id)"\n',
        ("tests/payments/test_request_refund.py",),
    ),
    Mutant(
        "refunds: no answer means a new number",
        "payments/commands/retry_refund.py",
        "        if newest.status == Status.REFUSED:\n",
        "        if newest.status == Status.CLOSED and newest.sends < 0:\n",
        ("tests/payments/test_send_refund.py", "tests/payments/test_end_refund_without_channel.py"),
    ),
    Mutant(
        "refunds: a refusal after an unanswered send kills the number",
        "payments/commands/_record_refund_answer.py",
        ' "proof": Sql("t.unanswered_sends = 1")',
        ' "proof": Sql("t.unanswered_sends >= 1")',
        ("tests/payments/test_send_refund.py::test_a_no_after_an_unanswered_send_proves_nothing",),
    ),
    Mutant(
        "refunds: another amount than ours is believed",
        "payments/commands/record_refund_fact.py",
        "        if said.amount_fen is not None and said.amount_fen != self.attempt.amount_fen:\n",
        "        if said.amount_fen is not None and said.amount_fen < 0:\n",
        ("tests/payments/test_record_refund_fact.py::test_r14_what_differs_from_ours_moves_nothing",),
    ),
    Mutant(
        "refunds: a late closing takes a success back",
        "payments/commands/record_refund_fact.py",
        '        return heard.keep(Outcome.ANOMALY, anomaly="refund_closed_after_success")\n',
        "        return heard.keep(Outcome.SAME)\n",
        ("tests/payments/test_record_refund_fact.py",),
    ),
    Mutant(
        "refunds: the next number is sent without asking about the one before",
        "payments/commands/send_refund.py",
        "    if attempt.seq > 0 and attempt.sends == 0:\n",
        "    if attempt.seq > 50 and attempt.sends == 0:\n",
        (
            "tests/payments/test_send_refund.py::test_a_number_we_believed_closed_but_the_channel_paid_holds_the_next_one_back",
        ),
    ),
    Mutant(
        "callbacks: the signature of WeChat Pay is not checked",
        "payments/channels/wechat_wire.py",
        "        if not self._fits(key, timestamp, nonce, body, signature):\n",
        "        if not timestamp:\n",
        ("tests/payments/wire/test_wechat_notify.py::test_anything_changed_is_forged",),
    ),
    Mutant(
        "callbacks: an old signature is fresh for ever",
        "payments/channels/wechat_wire.py",
        "        if abs(now.timestamp() - int(timestamp)) > FRESH_SECONDS:\n",
        "        if int(timestamp) < 0:\n",
        ("tests/payments/wire/test_wechat_notify.py::test_freshness_is_judged_by_the_now_that_is_passed",),
    ),
    Mutant(
        "callbacks: Alipay's signature is not checked",
        "payments/channels/alipay_wire.py",
        "        except InvalidSignature:\n            continue\n",
        "        except InvalidSignature:\n            return True\n",
        ("tests/payments/wire/test_alipay.py::test_every_field_is_under_the_signature",),
    ),
    Mutant(
        "callbacks: a notify for another merchant number is taken",
        "payments/commands/store_notify.py",
        '        return notice.merchant_ref in ("", account.mchid)\n',
        "        return True\n",
        ("tests/payments/test_refund_callback.py",),
    ),
)

AFTER_SALES = (
    Mutant(
        "after-sales: price protection does not come off a later return",
        "aftersales/drafts.py",
        "        if unit.hold == Hold.DEDUCTS:\n",
        "        if unit.hold == Hold.TOPS_UP:\n",
        ("tests/aftersales/test_refund_outcome.py::test_a27_price_protection_comes_off_a_later_return",),
    ),
    Mutant(
        "after-sales: the version that was seen is not compared",
        "aftersales/commands/_transition.py",
        '            "version": P("expected_version"),\n',
        "",
        ("tests/aftersales/test_return.py::test_confirm_at_another_version_is_refused",),
    ),
    Mutant(
        "after-sales: a claim in arbitration moves on",
        "aftersales/commands/_transition.py",
        '            **({} if during_dispute else {"is_disputed": False}),\n',
        "",
        ("tests/aftersales/test_arbitration.py::test_while_it_is_open_nobody_audits_cancels_rejects_or_lets_time_run",),
    ),
    Mutant(
        "after-sales: freight of shipped goods goes back whoever is at fault",
        "aftersales/settlement.py",
        "        claim.hold == Hold.CONSUMES and freight_is_refundable(unshipped=unshipped, liability=liability)\n",
        "        claim.hold == Hold.CONSUMES\n",
        ("tests/aftersales/test_return.py::test_inspection_may_find_the_buyer_at_fault",),
    ),
    Mutant(
        "after-sales: more is approved than the units are worth",
        "aftersales/settlement.py",
        "    if goods_fen > goods_room or freight_fen > freight_due:\n",
        "    if goods_fen < 0:\n",
        ("tests/aftersales/test_approve_after_sales.py",),
    ),
    Mutant(
        "after-sales: the window for returns is open for ever",
        "aftersales/drafts.py",
        "    if state == GoodsState.SIGNED and ends_at is not None and now > ends_at:\n",
        "    if state == GoodsState.SIGNED and ends_at is None:\n",
        ("tests/aftersales/test_apply_after_sales.py",),
    ),
    Mutant(
        "after-sales: a buyer cancels another buyer's claim",
        "aftersales/claims.py",
        "        claims = claims.filter(user_id=user_id)\n",
        "        claims = claims.exclude(user_id=None)\n",
        ("tests/aftersales/test_return.py::test_nobody_cancels_for_another_buyer",),
    ),
    Mutant(
        "after-sales: returned stock is put back at every try",
        "aftersales/commands/_roll_back_stock.py",
        '                business_key=f"{claim.after_sales_no}:stock:{bucket}",\n',
        '                business_key=f"{claim.after_sales_no}:stock:{bucket}:{now.timestamp()}",\n',
        ("tests/aftersales/test_refund_outcome.py", "tests/aftersales/test_exchange.py"),
    ),
    SchemaMutant(
        "schema: a unit may have two live claims",
        "unit_has_one_live_claim",
        "DROP INDEX unit_has_one_live_claim",
        ("tests/aftersales/test_guards.py::test_one_live_claim_per_unit_whatever_writes",),
    ),
    Mutant(
        "after-sales: the coupon comes back with the first line",
        "aftersales/drafts.py",
        "    return all(len(set(line.refunded_ordinals)) == line.qty for line in lines)\n",
        "    return any(len(set(line.refunded_ordinals)) == line.qty for line in lines)\n",
        ("tests/aftersales/test_coupon_rollback.py",),
    ),
)

LEDGERS = (
    Mutant(
        "stock: a movement told twice moves twice",
        "ledgers/commands/move_stock.py",
        "            return StockMoved(sku, qty, tracked=True, replayed=True)\n",
        '            business_key = f"{business_key}:{now.timestamp()}:{len(done)}"\n',
        ("tests/ledgers/test_stock.py::test_a_replay_moves_nothing",),
    ),
    Mutant(
        "stock: a bucket falls below zero",
        "ledgers/commands/move_stock.py",
        "        short = [bucket for bucket, balance in after.items() if balance < 0]\n",
        "        short = [bucket for bucket, balance in after.items() if balance < -10**9]\n",
        ("tests/ledgers/test_stock.py",),
    ),
    SchemaMutant(
        "schema: more points come back than were spent",
        "points_given_back_within_spent",
        "ALTER TABLE points_spent DROP CONSTRAINT points_given_back_within_spent",
        ("tests/ledgers/test_points.py::test_the_database_refuses_to_spend_what_is_not_there",),
    ),
    Mutant(
        "commission: an open claim does not hold it",
        "ledgers/commands/mature_commission.py",
        "        if commission.matured_at is not None or commission.hold_until > now or held:\n",
        "        if commission.matured_at is not None or commission.hold_until > now:\n",
        ("tests/ledgers/test_commission.py",),
    ),
    Mutant(
        "journal: a second charge is booked as sales",
        "ledgers/consumers.py",
        '            (UNCLAIMED if said["kind"] == "extra" else SALES): -amount_fen,\n',
        "            SALES: -amount_fen,\n",
        ("tests/ledgers/test_journal.py::test_a_second_charge_is_never_sales",),
    ),
    SchemaMutant(
        "schema: a journal entry need not balance",
        "journal_entry_balances",
        "DO $$ DECLARE found record; BEGIN FOR found IN SELECT tgname, tgrelid::regclass AS owner FROM pg_trigger"
        " WHERE tgrelid IN ('journal_entry'::regclass, 'journal_line'::regclass) AND tgname LIKE '%balance%' LOOP"
        " EXECUTE format('DROP TRIGGER %I ON %s', found.tgname, found.owner); END LOOP; END $$",
        ("tests/ledgers/test_journal.py::test_the_database_refuses_an_entry_that_does_not_balance",),
    ),
)

RECONCILIATION = (
    Mutant(
        "reconciliation: amounts of refunds are not compared with the bill",
        "reconciliation/rules/refunds.py",
        "    WHEN lines > 0 AND ours_fen <> theirs_fen THEN 'REFUND_AMOUNT_DIFFERS'\n",
        "",
        ("tests/reconciliation/test_refund_rules.py::test_amount_differs",),
    ),
    Mutant(
        "reconciliation: a refund that the channel does not know is not missed",
        "reconciliation/rules/refunds.py",
        "    WHEN proven_absent THEN 'REFUND_MISSING_AT_CHANNEL'\n",
        "",
        ("tests/reconciliation/test_refund_rules.py::test_missing_at_the_channel",),
    ),
    Mutant(
        "reconciliation: the gate is open although a P1 is not finished",
        "reconciliation/management/commands/gate.py",
        '        if counts["P0"] or counts["P1"]:\n',
        '        if counts["P0"]:\n',
        ("tests/reconciliation/test_alarms_and_gates.py::test_gate",),
    ),
    Mutant(
        "reconciliation: one person repairs a P0 alone",
        "reconciliation/commands/repair_finding.py",
        "        if finding.repair_requested_by_id == author_id:\n",
        "        if author_id is None:\n",
        ("tests/reconciliation/test_finding_commands.py::test_p0_needs_a_second_person",),
    ),
)

ACCESS = (
    Mutant(
        "access: a merchant's people see all merchants",
        "merchants/scoping.py",
        "    return queryset.filter(**{entry.path: staff.merchant_id})\n",
        "    return queryset\n",
        ("tests/admin/test_permissions.py",),
    ),
    Mutant(
        "access: every role presses every button",
        "merchants/scoping.py",
        "    return staff.role in entry.actions.get(action, NOBODY)\n",
        "    return action in entry.actions\n",
        ("tests/admin/test_permissions.py",),
    ),
    Mutant(
        "access: a client needs no scope",
        "merchants/api/authentication.py",
        "        return not scope or scope in self.scopes\n",
        "        return True\n",
        ("tests/merchants/test_authentication.py::test_scopes",),
    ),
    Mutant(
        "access: a request can be replayed",
        "merchants/api/authentication.py",
        '    if verdict == b"replayed":\n',
        '    if verdict == b"repeated":\n',
        ("tests/merchants/test_authentication.py::test_a_nonce_counts_once",),
    ),
    Mutant(
        "access: the time of a request does not matter",
        "merchants/api/authentication.py",
        "    if abs(now.timestamp() - signed.timestamp) > signing.SKEW_SECONDS:\n",
        "    if signed.timestamp < 0:\n",
        ("tests/merchants/test_authentication.py::test_the_clock_may_be_300_seconds_off",),
    ),
)

ALL: tuple[Mutant | SchemaMutant, ...] = (
    *KERNEL,
    *COUPONS,
    *ORDERS,
    *PAYMENTS,
    *AFTER_SALES,
    *LEDGERS,
    *RECONCILIATION,
    *ACCESS,
)
