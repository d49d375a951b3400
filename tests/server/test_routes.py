"""REST of the extension: who is let in, and what is answered."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from jupyter_server.auth import Authorizer
from tornado.httpclient import HTTPClientError

from jupyter_gpushare.client import RequestRefused, SchedulerClient, SchedulerUnavailable
from jupyter_gpushare.client.news import without_times
from jupyter_gpushare.server.handlers import HANDLERS, status_of
from jupyter_gpushare.server.relay import NotAbleTo, NotHere, NotShared
from tests.server.browser import Browser
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.waits import WAIT_S_MAX

KERNEL_ID = "12345678-1234-1234-1234-123456789abc"
PATHS = {
    "/gpushare/api/state": ("GET", "gpushare/api/state"),
    "/gpushare/api/timeline": ("GET", "gpushare/api/timeline"),
    "/gpushare/api/kernels/([\\w-]{1,128})/release": (
        "POST",
        f"gpushare/api/kernels/{KERNEL_ID}/release",
    ),
    "/gpushare/api/kernels/([\\w-]{1,128})/hold": (
        "POST",
        f"gpushare/api/kernels/{KERNEL_ID}/hold",
    ),
    "/gpushare/api/kernels/([\\w-]{1,128})/evict": (
        "POST",
        f"gpushare/api/kernels/{KERNEL_ID}/evict",
    ),
    "/gpushare/api/kernels/([\\w-]{1,128})/trim": (
        "POST",
        f"gpushare/api/kernels/{KERNEL_ID}/trim",
    ),
}


class Nobody(Authorizer):
    """Lets a user log in and do nothing."""

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        return resource != "gpushare"


@pytest.mark.promise("server-18", "Each verb of each route authenticates and authorises")
def test_every_route_is_tried_here() -> None:
    """A route that is added is one of those that the tests below walk."""
    assert {pattern for pattern, _ in HANDLERS} == PATHS.keys()
    for pattern, handler in HANDLERS:
        verbs = {"get", "post", "put", "patch", "delete"} & handler.__dict__.keys()
        assert verbs == {PATHS[pattern][0].lower()}


async def refused(jp_fetch: Any, verb: str, path: str, **options: Any) -> HTTPClientError:
    body = {"body": b""} if verb == "POST" else {}
    with pytest.raises(HTTPClientError) as error:
        await jp_fetch(*path.split("/"), method=verb, **{**body, **options})
    return error.value


@pytest.mark.promise("server-18")
async def test_strangers_are_kept_out(extension: Any, jp_serverapp: Any, jp_fetch: Any) -> None:
    """Without a token, each verb of each route is forbidden: by the route itself, also where the
    server would let strangers in and where no XSRF check comes before it."""
    jp_serverapp.web_app.settings["allow_unauthenticated_access"] = True
    jp_serverapp.web_app.settings["disable_check_xsrf"] = True
    for verb, path in PATHS.values():
        error = await refused(jp_fetch, verb, path, headers={"Authorization": "token wrong"})
        assert error.code == 403, path


@pytest.mark.promise("server-18")
async def test_users_need_to_be_authorised(
    extension: Any, jp_serverapp: Any, jp_fetch: Any
) -> None:
    """Who is logged in and may not use the resource `gpushare` is refused, too."""
    jp_serverapp.web_app.settings["authorizer"] = Nobody(parent=jp_serverapp)
    for verb, path in PATHS.values():
        assert (await refused(jp_fetch, verb, path)).code == 403, path


async def test_acting_on_a_kernel_that_is_not_here(extension: Any, jp_fetch: Any) -> None:
    """It is not found, in one sentence and what to do."""
    for action, body in (
        ("release", b""),
        ("hold", b'{"hold_s": 60}'),
        ("evict", b""),
        ("trim", b""),
    ):
        path = f"gpushare/api/kernels/{KERNEL_ID}/{action}"
        error = await refused(jp_fetch, "POST", path, body=body)
        assert error.code == 404, action
        assert error.response is not None
        assert "has no kernel" in json.loads(error.response.body)["message"]


async def test_a_hold_without_a_time(extension: Any, jp_fetch: Any) -> None:
    """It is the browser's mistake, in one sentence and what to do."""
    path = f"gpushare/api/kernels/{KERNEL_ID}/hold"
    for body in (b"", b"[]", b"{}", b'{"hold_s": true}', b'{"hold_s": "1m"}'):
        error = await refused(jp_fetch, "POST", path, body=body)
        assert error.code == 400, body
        assert error.response is not None
        assert json.loads(error.response.body)["message"].startswith("`hold_s` is not a time.")


@pytest.fixture
def switched_off(monkeypatch: pytest.MonkeyPatch) -> set[threading.Thread]:
    """The kill switch, in the server's own environment; the threads from before the server."""
    monkeypatch.setenv("GPUSHARE_DISABLE", "1")
    return set(threading.enumerate())


async def test_a_server_that_is_switched_off(
    switched_off: set[threading.Thread], extension: Any, jp_fetch: Any
) -> None:
    """It says so, looks for no scheduler, and asks nobody to start one."""
    answer = json.loads((await jp_fetch("gpushare", "api", "state")).body)
    assert answer["scheduler"] == "off"
    assert answer["message"] == "GPU sharing is switched off here (GPUSHARE_DISABLE=1)."
    started = set(threading.enumerate()) - switched_off
    assert "gpushare-link" not in {thread.name for thread in started}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestRefused(409, "It has no turn."), 409),
        (RequestRefused(403, "The hub does not know this token."), 403),
        (RequestRefused(503, "The hub does not answer."), 503),
        (RequestRefused(401, "The request has no hub token."), 502),
        (RequestRefused(500, "The scheduler failed."), 502),
        (SchedulerUnavailable("No scheduler."), 503),
        (NotHere("No such kernel."), 404),
        (NotShared("It does not share."), 409),
        (NotAbleTo("It runs R."), 409),
    ],
)
def test_whose_fault_an_error_is(error: Exception, status: int) -> None:
    """The browser must not take the scheduler's failures, or its want of a token, for its own
    server's."""
    assert status_of(error) == status


async def test_a_state_without_a_scheduler(extension: Any, jp_fetch: Any) -> None:
    """The state is answered all the same, and says what is wrong and what to do; the timeline is
    empty."""
    await extension.link.decided(WAIT_S_MAX)
    answer = json.loads((await jp_fetch("gpushare", "api", "state")).body)
    assert (answer["version"], answer["scheduler"], answer["user"]) == (1, "down", "alice")
    assert "Start one with" in answer["message"]
    assert (answer["devices"], answer["kernels"]) == ([], [])
    assert (await timeline(jp_fetch))["devices"] == []


async def test_the_state_has_holder_and_queue(
    scheduler: SchedulerUnderTest, browser: Browser, jp_fetch: Any
) -> None:
    """Devices, who holds them and who waits, as the scheduler tells it."""
    with scheduler.joined("first") as first, scheduler.joined("second") as second:
        first.take_turn()
        second.ask()
        told = await browser.until(lambda s: s["devices"] and s["devices"][0]["queue"])
        answer = json.loads((await jp_fetch("gpushare", "api", "state")).body)
        assert without_times(answer) == without_times(told)
        (device,) = answer["devices"]
        assert (device["holder"]["name"], device["holder"]["mine"]) == ("first", False)
        assert device["holder"]["held_s"] >= 0
        assert [(w["position"], w["name"]) for w in device["queue"]] == [(1, "second")]


async def timeline(jp_fetch: Any) -> dict[str, Any]:
    answer = json.loads((await jp_fetch("gpushare", "api", "timeline")).body)
    assert isinstance(answer, dict)
    return answer


@pytest.mark.promise("scheduler-93")
async def test_the_timeline_has_turns(
    scheduler: SchedulerUnderTest, browser: Browser, jp_fetch: Any
) -> None:
    """Who had each device, as the scheduler tells it to this server's user."""
    with scheduler.joined("first") as first:
        first.take_turn()
        await browser.until(lambda s: s["devices"] and s["devices"][0]["holder"])
        answer = await timeline(jp_fetch)
    (device,) = answer["devices"]
    assert answer["version"] == 1
    assert [turn["end_s"] for turn in device["turns"]] == [None]
    assert [(each["name"], each["own"]) for each in answer["tenants"]] == [("first", True)]


async def test_the_timeline_of_an_older_scheduler(
    scheduler: SchedulerUnderTest,
    browser: Browser,
    jp_fetch: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It keeps none, and answers that there is no such route: an empty one is shown. What else it
    refuses is told."""
    refusals = [RequestRefused(404, "There is no /timeline."), RequestRefused(403, "Not for you.")]

    def ask(*_: object) -> Any:
        raise refusals.pop(0)

    await browser.until(lambda s: s["scheduler"] == "up")
    monkeypatch.setattr(SchedulerClient, "_ask", ask)
    assert (await timeline(jp_fetch))["devices"] == []
    error = await refused(jp_fetch, "GET", "gpushare/api/timeline")
    assert error.code == 403
