"""Events that move an after-sales order, and the rollbacks it asks for."""

from aftersales.commands.record_refund_failed import record_refund_failed
from aftersales.commands.record_refund_succeeded import record_refund_succeeded
from aftersales.commands.run_rollback import run_rollback
from kernel import inbox

OWNER = "after_sales"


@inbox.consumer("refund.succeeded", name="aftersales.record_refund_succeeded")
def refund_succeeded(event: inbox.Event) -> None:
    if event.payload["owner_kind"] == OWNER:
        record_refund_succeeded(
            merchant_id=event.merchant_id,
            after_sales_no=event.payload["owner_no"],
            refund_no=event.payload["refund_no"],
            amount_fen=event.payload["amount_fen"],
            now=event.now,
        )


@inbox.consumer("refund.failed", name="aftersales.record_refund_failed")
def refund_failed(event: inbox.Event) -> None:
    if event.payload["owner_kind"] == OWNER:
        record_refund_failed(
            merchant_id=event.merchant_id,
            after_sales_no=event.payload["owner_no"],
            refund_no=event.payload["refund_no"],
            code=event.payload["code"],
            dead=bool(event.payload.get("dead")),
            now=event.now,
        )


@inbox.consumer("rollback.requested", name="aftersales.run_rollback")
def rollback_requested(event: inbox.Event) -> None:
    run_rollback(
        merchant_id=event.merchant_id,
        after_sales_no=event.payload["after_sales_no"],
        system=event.payload["system"],
        now=event.now,
    )
