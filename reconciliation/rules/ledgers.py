"""Balances equal the sum of their entries, and every journal entry balances.

What is compared is said once, by the ledgers themselves (ledgers/checks.py); here it becomes rules.
"""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from ledgers import checks
from reconciliation.rules import STATE, Rule


def _differs(check: str, *, key: str, amount: str = "NULL") -> str:
    """A check's rows as findings: columns named `entries_…` are the other side."""
    figures = "SELECT jsonb_object_agg(f.name, f.value) FROM jsonb_each(to_jsonb(x)) AS f(name, value) WHERE"
    return f"""
        SELECT {key} AS key, x.merchant_id,
               coalesce(({figures} f.name NOT LIKE 'entries\\_%%' AND f.name <> 'merchant_id'), '{{}}') AS ours,
               coalesce(({figures} f.name LIKE 'entries\\_%%'), '{{}}') AS theirs,
               ({amount})::bigint AS amount_fen
        FROM ({check.replace("%", "%%")}) AS x
        WHERE (%(merchant_id)s::uuid IS NULL OR x.merchant_id = %(merchant_id)s::uuid)"""


RULES = (
    Rule(
        code="STOCK_DIFFERS",
        severity="P0",
        scope=STATE,
        sql=_differs(checks.STOCK_BALANCES, key="x.sku"),
        title=_("Stock differs from the sum of its entries"),
        advice=_("The balance was changed without an entry. Count, then adjust the stock with a reason."),
    ),
    Rule(
        code="POINTS_DIFFER",
        severity="P0",
        scope=STATE,
        sql=_differs(checks.POINTS_BALANCES, key="x.user_id"),
        title=_("Points balance differs from the sum of its entries"),
        advice=_("The balance was changed without an entry. Adjust the points with a reason."),
    ),
    Rule(
        code="WALLET_DIFFERS",
        severity="P0",
        scope=STATE,
        sql=_differs(checks.WALLET_BALANCES, key="x.user_id", amount="abs(x.balance_fen - x.entries_balance_fen)"),
        title=_("Wallet differs from the sum of its entries"),
        advice=_("The balance was changed without an entry. Let nothing be paid with it before it is explained."),
    ),
    Rule(
        code="WALLET_PAYMENT_DIFFERS",
        severity="P0",
        scope=STATE,
        sql=_differs(
            checks.WALLET_PAYMENTS,
            key="x.number",
            amount="abs(coalesce(x.paid_fen, 0) - coalesce(x.entries_paid_fen, 0))",
        ),
        title=_("Payment by balance and the wallet's entry differ"),
        advice=_("One side has money the other does not know. Ask the channel about the order; it settles or refunds."),
    ),
    Rule(
        code="WALLET_REFUND_DIFFERS",
        severity="P0",
        scope=STATE,
        sql=_differs(
            checks.WALLET_REFUNDS,
            key="x.number",
            amount="abs(coalesce(x.refunded_fen, 0) - coalesce(x.entries_refunded_fen, 0))",
        ),
        title=_("Refund to a balance and the wallet's entry differ"),
        advice=_("Ask the channel about the refund's number. Never credit a wallet by hand for it."),
    ),
    Rule(
        code="COMMISSION_DIFFERS",
        severity="P0",
        scope=STATE,
        sql=_differs(checks.COMMISSION_BALANCES, key="x.beneficiary"),
        title=_("Commission account differs from its entries or its commissions"),
        advice=_("Pay nothing out of this account before the difference is explained."),
    ),
    Rule(
        code="COMMISSION_MATURED_WHILE_HELD",
        severity="P1",
        scope=STATE,
        sql=_differs(checks.MATURED_WHILE_HELD, key="concat_ws(':', x.order_no, x.line_no, x.after_sales_no)"),
        title=_("Commission became withdrawable while an after-sales order was open"),
        advice=_("The hold did not hold. If the refund goes through, the commission becomes a debt of its owner."),
    ),
    Rule(
        code="SALES_DIFFER",
        severity="P2",
        scope=STATE,
        sql=_differs(checks.SALES_DAYS, key="concat_ws(':', x.on_date, x.sku)"),
        title=_("Sales figures of a day differ from the sum of their entries"),
        advice=_("Reports show wrong figures. The entries are right."),
    ),
    Rule(
        code="JOURNAL_UNBALANCED",
        severity="P0",
        scope=STATE,
        sql=_differs(checks.JOURNAL_BALANCE, key="x.business_key", amount="abs(x.sum_fen)"),
        title=_("Journal entry that does not add up to nothing"),
        advice=_("Someone went round the commands. Post the difference with a reason."),
    ),
)
