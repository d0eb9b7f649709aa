"""The back office's browser for the after-sales pages."""

from tests.admin.conftest import (  # noqa: F401
    browser_context_args,
    browser_type_launch_args,
    console,
    log_in,
    shot,
)
