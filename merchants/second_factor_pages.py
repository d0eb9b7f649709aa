"""The pages of the second factor: asked for at login, set up by the person."""

import segno
from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kernel import admin as desk
from kernel import clock, secrets
from kernel.errors import Refusal
from merchants import entrance, one_time_codes, scoping
from merchants.commands.begin_second_factor import begin_second_factor
from merchants.commands.check_code import check_code
from merchants.commands.confirm_second_factor import confirm_second_factor
from merchants.models import SecondFactor, Staff
from merchants.roles import EVERYBODY


class CodeForm(desk.ButtonForm):
    code = forms.CharField(
        label=gettext_lazy("Code"),
        max_length=20,
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code", "inputmode": "text", "autofocus": True}),
    )


def _staff(request: HttpRequest) -> Staff:
    staff = scoping.staff_of(request.user)
    assert staff is not None  # the site lets nobody else here
    return staff


def ask(request: HttpRequest) -> HttpResponse:
    """The second step of a login."""
    if request.session.get(entrance.FACTOR) != entrance.ASKED:
        return redirect("admin:index")
    form = CodeForm(request.POST or None, request=request)
    if request.method == "POST" and form.is_valid():
        now, staff = clock.now(), _staff(request)
        try:
            is_recovery = check_code(staff_id=staff.pk, code=form.cleaned_data["code"], now=now)
        except Refusal as refusal:
            form.add_error("code", str(refusal.message))
        else:
            request.session[entrance.FACTOR] = entrance.PASSED
            if is_recovery:
                desk.site.policy.record(request, action="recovery_code_used", subject=staff, now=now)
            return redirect("admin:index")
    context = {**desk.site.each_context(request), "title": _("Second step"), "form": form}
    return TemplateResponse(request, "admin/merchants/second_factor/ask.html", context)


def set_up(request: HttpRequest) -> HttpResponse:
    """Connect an authenticator app: show the secret, take the first code, show the recovery codes once."""
    staff, now, folder = _staff(request), clock.now(), "admin/merchants/second_factor"
    context = {**desk.site.each_context(request), "title": _("Second factor")}
    if SecondFactor.objects.filter(staff=staff, confirmed_at__isnull=False).exists():
        return TemplateResponse(request, f"{folder}/there.html", context)
    if request.method == "POST" and "code" not in request.POST:
        begin_second_factor(staff_id=staff.pk, now=now)
        return redirect("admin:second_factor_setup")
    form = CodeForm(request.POST or None, request=request)
    if request.method == "POST" and form.is_valid():
        try:
            confirmed = confirm_second_factor(staff_id=staff.pk, code=form.cleaned_data["code"], now=now)
        except Refusal as refusal:
            form.add_error("code", str(refusal.message))
        else:
            request.session[entrance.FACTOR] = entrance.PASSED
            desk.site.policy.record(request, action="second_factor_set_up", subject=staff, now=now)
            return TemplateResponse(request, f"{folder}/codes.html", {**context, "codes": confirmed.recovery_codes})
    begun = SecondFactor.objects.filter(staff=staff).first()
    if begun is not None:
        secret = secrets.decrypt(begun.secret_encrypted)
        uri = one_time_codes.uri(secret, username=staff.user.get_username(), issuer=settings.QUITS_ISSUER)
        groups = [secret[start : start + 4] for start in range(0, len(secret), 4)]
        # A data address, which the page's own policy allows: the secret goes to no other host and into no file.
        picture = segno.make(uri, error="m").svg_data_uri(omitsize=True, border=3, dark="#16201f", light="#fff")
        context |= {"form": form, "secret": " ".join(groups), "uri": uri, "picture": picture}
    return TemplateResponse(request, f"{folder}/set_up.html", context)


desk.site.add_page("second-factor/", ask, name="second_factor")
desk.site.add_page("second-factor/set-up/", set_up, name="second_factor_setup")
scoping.register_page("second_factor", view=EVERYBODY)
scoping.register_page("second_factor_setup", view=EVERYBODY)
