"""Response headers that keep the browser to our own host, and private pages out of shared caches."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase

CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        # Nothing inline and nothing evaluated: the theme runs on Alpine's CSP build (static/unfold/js/alpine).
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "manifest-src 'self'",
    ]
)


class SecurityHeaders:
    """CSP and permissions on every answer; nothing of the back office is stored by caches."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        response.headers.setdefault("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
        if request.path.startswith("/admin/"):
            response.headers.setdefault("Cache-Control", "no-store, private")
        return response
