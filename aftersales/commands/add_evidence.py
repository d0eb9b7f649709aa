"""A party shows an image: judged by its content, kept outside the web root under its own digest."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from aftersales.actors import By
from aftersales.images import NotAnImage, keep, read_image
from aftersales.models import AfterSalesOrder, ArbitrationCase, Evidence
from kernel import idempotency
from kernel.errors import InvalidInput, NotFound, Refusal
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work

MAX_BYTES = 10 * 1024 * 1024
MAX_PER_SIDE = 20


class EvidenceRefused(Refusal):
    code = "EVIDENCE_REFUSED"
    status = 422
    message = _("Only JPEG, PNG, WebP or GIF images up to 10 MiB are taken.")


class TooMuchEvidence(Refusal):
    code = "LIMIT_REACHED"
    status = 422
    message = _("This party has shown as many images as are taken.")


@dataclass(frozen=True)
class EvidenceAdded:
    evidence_id: UUID
    content_type: str
    size: int
    width: int
    height: int
    sha256: str
    replayed: bool = False


def add_evidence(
    *,
    merchant_id: UUID,
    content: bytes,
    note: str = "",
    after_sales_no: str = "",
    case_id: UUID | None = None,
    user_id: str | None = None,
    by: By,
    key: BusinessKey,
    now: datetime,
) -> EvidenceAdded:
    """To a claim (`after_sales_no`) or to an arbitration case. What the image is, is read from its bytes; what its
    name or header claims does not matter. Raises NotFound, EvidenceRefused, TooMuchEvidence, InvalidInput."""
    if bool(after_sales_no) == bool(case_id):
        raise InvalidInput(after_sales_no=after_sales_no, case_id=str(case_id or ""))
    if len(content) > MAX_BYTES:
        raise EvidenceRefused(size=len(content), limit=MAX_BYTES)
    try:
        image = read_image(content)
    except NotAnImage as error:
        raise EvidenceRefused(found=str(error)) from error
    _owner(merchant_id, after_sales_no, case_id, user_id)  # before the file is kept: strangers leave nothing
    keep(content, image.sha256)
    with unit_of_work(now=now):
        done = idempotency.begin(key, EvidenceAdded, now=now)
        if done is not None:
            return done
        claim, case = _owner(merchant_id, after_sales_no, case_id, user_id, lock=True)
        mine = Evidence.objects.filter(after_sales=claim, arbitration=case, side=by.kind)
        row = mine.filter(sha256=image.sha256).first()
        if row is None:
            if mine.count() >= MAX_PER_SIDE:
                raise TooMuchEvidence(limit=MAX_PER_SIDE)
            row = Evidence.objects.create(
                merchant_id=merchant_id,
                after_sales=claim,
                arbitration=case,
                side=by.kind,
                author=by.id,
                note=note,
                content_type=image.content_type,
                size=len(content),
                width=image.width,
                height=image.height,
                sha256=image.sha256,
                created_at=now,
            )
        result = EvidenceAdded(row.pk, row.content_type, row.size, row.width, row.height, row.sha256)
        idempotency.finish(key, result)
        return result


def _owner(
    merchant_id: UUID, after_sales_no: str, case_id: UUID | None, user_id: str | None, *, lock: bool = False
) -> tuple[AfterSalesOrder | None, ArbitrationCase | None]:
    """The claim or case; locked, so that two uploads count each other. Raises NotFound."""
    mine = {"merchant_id": merchant_id, **({"user_id": user_id} if user_id is not None else {})}
    claim = case = None
    if after_sales_no:
        claim = _rows(AfterSalesOrder, lock).filter(after_sales_no=after_sales_no, **mine).first()
    elif case_id is not None:
        case = _rows(ArbitrationCase, lock).filter(pk=case_id, **mine).first()
    if claim is None and case is None:
        raise NotFound(after_sales_no=after_sales_no, case_id=str(case_id or ""))
    return claim, case


def _rows(model: Any, lock: bool) -> Any:
    return model.objects.select_for_update() if lock else model.objects.all()
