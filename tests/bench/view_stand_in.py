"""The view's page, where it has not been built: a table without a design, of the same answers. The
benchmark says so (`page` in its result)."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_gpushare.view import pages
from jupyter_gpushare.view.api import Route, ViewHandler, ViewState

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
    if page_is_built():
        return ()
    return (lambda state: [(state.url(""), _StandIn, {"state": state})],)


class _StandIn(ViewHandler):
    async def get(self) -> None:
        self.clear_header("Content-Security-Policy")  # its script is a part of it
        self.finish(_PAGE)
