"""What every answer of the view tells browsers and proxies."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_COMMON = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
PAGE_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        **_COMMON,
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'",
    }
)
DATA_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        **_COMMON,
        "Content-Security-Policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "sandbox",
    }
)
