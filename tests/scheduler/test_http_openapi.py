"""openapi.yaml says what the scheduler's HTTP does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from jupyter_gpushare.client.connection import user_name
from jupyter_gpushare.scheduler.http import api as http_api
from jupyter_gpushare.scheduler.identity.caller import Caller
from tests.scheduler.test_http_api import request
from tests.scheduler.test_other_users import ALICE, BOB, DEVICE, Office
from tests.scheduler.test_timeline import shared_device, told
from tests.support.scheduler_process import SchedulerUnderTest

VERBS = {"get", "post", "put", "patch", "delete"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    text = Path(http_api.__file__).with_name("openapi.yaml").read_text()
    document = yaml.safe_load(text)
    assert isinstance(document, dict)
    return document


def valid(document: dict[str, Any], name: str, answer: object) -> None:
    """Raises where the answer is not as the schema of this name says."""
    schema = {**document, "$ref": f"#/components/schemas/{name}"}
    jsonschema.Draft202012Validator(schema).validate(answer)


@pytest.mark.promise("server-3", "The HTTP API is as `openapi.yaml` says")
def test_routes_and_file_agree(document: dict[str, Any]) -> None:
    """Each verb of each route is described, and nothing else is."""
    described = {
        (route, verb) for route, item in document["paths"].items() for verb in item if verb in VERBS
    }
    served = {
        (route, verb)
        for route, handler in http_api.ROUTES.items()
        for verb in VERBS & handler.__dict__.keys()
    }
    assert described == served
    assert [server["url"] for server in document["servers"]] == [http_api.API]


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    """Each $ref names a part of the file."""

    def follow(value: object) -> None:
        if isinstance(value, dict):
            if target := value.get("$ref"):
                found: Any = document
                for step in target.removeprefix("#/").split("/"):
                    found = found[step]
            for each in value.values():
                follow(each)
        elif isinstance(value, list):
            for each in value:
                follow(each)

    follow(document)


@pytest.mark.promise("server-3")
def test_answers_are_as_described(document: dict[str, Any], scheduler: SchedulerUnderTest) -> None:
    """A status with a holder and a waiter, a registration, settings and an error fit the file."""
    with scheduler.joined("first") as first, scheduler.joined("second") as second:
        first.take_turn()
        second.ask()
        valid(document, "Status", scheduler.eventually(lambda s: s["devices"][0]["queue"]))
        valid(document, "Timeline", scheduler.client.timeline())
        waiting = next(t["id"] for t in scheduler.status()["tenants"] if t["name"] == "second")
        past = scheduler.client.past_waits(waiting)
        assert past["waits"][0]["intervals"][0]["had"]
        valid(document, "PastWaits", past)
        assert scheduler.status()["shares"] == []
        entry = {"limits": {user_name(os.getuid()): "0.5"}}
        change = json.dumps(entry).encode()
        valid(document, "Settings", request(scheduler, "PATCH", "/api/v1/settings", change)[1])
        status = scheduler.status()
        valid(document, "Status", status)
        assert [each["limit"] for each in status["shares"]] == [0.5]
        body = b'{"name": "a", "kind": "run"}'
        valid(document, "Registration", request(scheduler, "POST", "/api/v1/tenants", body)[1])
        valid(document, "Error", request(scheduler, "GET", "/api/v1/nothing")[1])


@pytest.mark.promise("scheduler-83")
def test_what_others_see_is_as_described(document: dict[str, Any]) -> None:
    """So does a status that has been cut for another user."""
    office = Office()
    office.busy_tenants_of(BOB)
    valid(document, "Status", json.loads(json.dumps(office.status(Caller(ALICE)))))


def test_a_full_timeline_is_as_described(document: dict[str, Any]) -> None:
    """With turns, waits and samples, of oneself and of others."""
    office = Office()
    timeline, _ = shared_device(office)
    for second in range(10):
        timeline.measured(DEVICE, 40 if second > 5 else None, 7, second)
        timeline.waits(DEVICE, second % 3, second)
    office.service._now_s = lambda: 10.0
    seen = told(office, timeline, Caller(ALICE))
    assert all(seen["devices"][0].values())
    valid(document, "Timeline", json.loads(json.dumps(seen)))
