"""Reads of after-sales orders for the API and the admin."""

from uuid import UUID

from django.db.models import Prefetch, Q, QuerySet

from aftersales.models import AfterSalesOrder, AfterSalesUnit, Evidence
from kernel.errors import NotFound
from ledgers.models import PointsEntry


def list_after_sales(
    *, merchant_id: UUID, user_id: str = "", order_no: str = "", status: str = ""
) -> QuerySet[AfterSalesOrder]:
    """A merchant's claims, newest first; a constant number of queries per page."""
    claims = AfterSalesOrder.objects.filter(merchant_id=merchant_id)
    if user_id:
        claims = claims.filter(user_id=user_id)
    if order_no:
        claims = claims.filter(order_no=order_no)
    if status:
        claims = claims.filter(status=status)
    return claims.prefetch_related(_units())


def get_after_sales(*, merchant_id: UUID, after_sales_no: str) -> AfterSalesOrder:
    """One claim with everything the API shows of it. Raises NotFound."""
    claim = (
        AfterSalesOrder.objects.filter(merchant_id=merchant_id, after_sales_no=after_sales_no)
        .select_related("line")
        .prefetch_related(_units(), "shipments", "log", "rollbacks", "evidence", "arbitrations")
        .first()
    )
    if claim is None:
        raise NotFound(after_sales_no=after_sales_no)
    return claim


def get_evidence(*, merchant_id: UUID, evidence_id: UUID, user_id: str) -> Evidence:
    """An image for the buyer whose claim or case it belongs to. Raises NotFound for everybody else."""
    found = (
        Evidence.objects.filter(
            Q(after_sales__user_id=user_id) | Q(arbitration__user_id=user_id), merchant_id=merchant_id, pk=evidence_id
        )
        .distinct()
        .first()
    )
    if found is None:
        raise NotFound(evidence_id=str(evidence_id))
    return found


def list_points(*, merchant_id: UUID, user_id: str) -> QuerySet[PointsEntry]:
    """A user's movements of points, newest first."""
    return PointsEntry.objects.filter(merchant_id=merchant_id, account__user_id=user_id)


def _units() -> Prefetch:
    return Prefetch("units", queryset=AfterSalesUnit.objects.order_by("ordinal"))
