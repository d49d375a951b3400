"""What a checkout may lack of the view: the handlers of its page, where the application has none,
and the page itself, where it has not been built. The benchmark says so (`page` in its result)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from jupyter_gpushare.view import app, pages
from jupyter_gpushare.view.api import Route, ViewHandler, ViewState
from jupyter_gpushare.view.follow import Followers

_PAGE = """<!doctype html><meta charset="utf-8"><title>stand-in</title>
<table id="rows"></table><script>
const rows = document.getElementById('rows');
new EventSource('api/v1/events' + location.search).onmessage = event => {
  rows.replaceChildren(...JSON.parse(event.data).nodes.map(node => {
    const row = document.createElement('tr');
    for (const text of [node.name, node.state, (node.holders || []).join(', ')])
      row.insertCell().textContent = text;
    return row;
  }));
};
</script>"""


def page_is_built() -> bool:
    return pages.SCRIPT.exists()


def missing_parts() -> tuple[Callable[[ViewState], list[Route]], ...]:
    """They go before all others."""
    parts: list[Callable[[ViewState], list[Route]]] = []
    if not page_is_built():
        parts.append(lambda state: [(state.url(""), _StandIn, {"state": state})])
    if not any(part.__module__ == pages.__name__ for part in app.PARTS):
        parts.append(_pages)
    return tuple(parts)


class _StandIn(ViewHandler):
    headers: ClassVar[dict[str, str]] = {}

    async def get(self) -> None:
        self.finish(_PAGE)


def _pages(state: ViewState) -> list[Route]:
    shared: Any = state
    shared.followers = Followers(state.fleet, state.clock_s)
    state.listeners.append(shared.followers.tell)

    class Base(ViewHandler):
        def initialize(self) -> None:  # type: ignore[override]
            """`state` is the class's."""

    return [
        (state.url(pattern), *rest)
        for pattern, *rest in pages.routes(shared, Base)  # type: ignore[arg-type]
        if not pattern.startswith("static/")
    ]
