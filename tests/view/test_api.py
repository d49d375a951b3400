"""What all answers of the view share, and that openapi.yaml says what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from jupyter_gpushare.reports.format import Place
from jupyter_gpushare.view import api
from jupyter_gpushare.view.app import make_app
from tests.reports.rows import a_device, a_node, a_report, a_tenant
from tests.view.service import PREFIX, RunningView, run, running_view

VERBS = {"get", "post", "put", "patch", "delete", "head", "options"}
PUBLIC = {"/static/{file}"}
WITH_A_CREDENTIAL_OF_ITS_OWN = {"/api/v1/reports"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found = yaml.safe_load(api.OPENAPI.read_text())
    assert isinstance(found, dict)
    return found


def valid(document: dict[str, Any], name: str, answer: object) -> None:
    """Raises where the answer is not as the schema of this name says."""
    schema = {**document, "$ref": f"#/components/schemas/{name}"}
    jsonschema.Draft202012Validator(schema).validate(answer)


def asked(route: str) -> str:
    """A route of the document, to be asked for."""
    return route.removeprefix("/").replace("{name}", "node-a").replace("{file}", "page.css")


async def two_nodes(view: RunningView) -> None:
    """Alice holds, bob waits; on node-b there is an account that is called alice."""
    held, waits = Place(tenant="a", for_s=3.0), Place(tenant="b", for_s=1.0)
    node = await view.node(
        "node-a",
        devices={"d": a_device(holders=(held,), queue=(waits,))},
        tenants={"a": a_tenant(devices=("d",)), "b": a_tenant(owner="bob", name="b secret.ipynb")},
    )
    await node.report(a_report(1, node=a_node(problems=("Its fan is dusty. Clean it.",))))
    await view.node(
        "node-b",
        "c" * 32,
        node=a_node(owners="accounts", platform="slurm"),
        tenants={"c": a_tenant(name="account.ipynb")},
    )


@pytest.mark.promise("view-24", "The view's API is as its `openapi.yaml` says")
def test_routes_and_file_agree(document: dict[str, Any], tmp_path: Path) -> None:
    """Each route is described, and each that is described is there; but for logging in."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            app = make_app(view.view.state, view.view.receiver)
            rules = [rule for rule in app.wildcard_router.rules if hasattr(rule.matcher, "regex")]
            for rule in rules:
                fitting = [
                    route
                    for route in document["paths"]
                    if rule.matcher.regex.fullmatch(f"{PREFIX}{asked(route)}")
                ]
                assert fitting, rule.matcher.regex.pattern
            for route, item in document["paths"].items():
                path = f"{PREFIX}{asked(route)}"
                rule = next((r for r in rules if r.matcher.regex.fullmatch(path)), None)
                assert rule is not None, route
                assert VERBS & item.keys() == {"get"}

    run(scenario())
    assert [server["url"] for server in document["servers"]] == [PREFIX.rstrip("/")]


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    """Each $ref names a part of the file."""

    def follow(value: object) -> None:
        if isinstance(value, dict) and (target := value.get("$ref")):
            found: Any = document
            for step in target.removeprefix("#/").split("/"):
                found = found[step]
        for each in (
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        ):
            follow(each)

    follow(document)


@pytest.mark.promise("view-24")
@pytest.mark.parametrize("caller", ["admin", "alice", "nobody in particular"])
def test_answers_are_as_described(document: dict[str, Any], tmp_path: Path, caller: str) -> None:
    """For an administrator, for a user with notebooks and for one without."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            await two_nodes(view)
            for route, name in (
                ("api/v1/nodes", "Nodes"),
                ("api/v1/nodes?find=node&state=live&sort=free&limit=1&offset=1", "Nodes"),
                ("api/v1/nodes/node-a", "NodeWhole"),
                ("api/v1/nodes/node-b", "NodeWhole"),
                ("api/v1/tenants", "Tenants"),
                ("api/v1/summary", "Summary"),
                ("api/v1/nodes/nothing", "Error"),
                ("api/v1/nodes?limit=0", "Error"),
                ("nowhere", "Error"),
            ):
                response = await view.get(route, caller)
                assert response.headers["Content-Type"].startswith("application/json"), route
                assert (response.code == 200) == (name != "Error"), route
                valid(document, name, json.loads(response.body))

    run(scenario())


@pytest.mark.promise(
    "bad-input-72",
    "A user id that is two people on two nodes: an account's notebooks are no hub user's, unless "
    "the administrator says that accounts are users",
)
@pytest.mark.parametrize("accounts_are_users", [False, True])
def test_two_people_of_one_name(tmp_path: Path, accounts_are_users: bool) -> None:
    """The hub's alice sees her notebook, and the account's only with that flag."""

    async def scenario() -> None:
        async with running_view(tmp_path, accounts_are_users=accounts_are_users) as view:
            await two_nodes(view)
            answer = json.loads((await view.get("api/v1/tenants", "alice")).body)
            expected = ["train.ipynb", "account.ipynb"][: 1 + accounts_are_users]
            assert [each["name"] for each in answer["tenants"]] == expected
            raw = ""
            for route in ("api/v1/nodes/node-a", "api/v1/nodes/node-b", "api/v1/summary"):
                raw += (await view.get(route, "alice")).body.decode()
            assert "b secret" not in raw and "bob" not in raw
            assert ("account.ipynb" in raw) == accounts_are_users

    run(scenario())


@pytest.mark.promise("view-25", "No answer of the view is for somebody who has not logged in")
def test_every_route_without_a_caller(document: dict[str, Any], tmp_path: Path) -> None:
    """The page leads to the hub, programs are refused with a sentence; no node is in it."""

    async def scenario() -> None:
        async with running_view(tmp_path, data_dir=tmp_path) as view:
            await two_nodes(view)
            for route in document["paths"].keys() - PUBLIC - WITH_A_CREDENTIAL_OF_ITS_OWN:
                response = await view.get(asked(route))
                if route == "/":
                    assert response.code == 302
                    assert response.headers["Location"] == f"{PREFIX}login"
                    continue
                assert response.code == 403, route
                valid(document, "Error", json.loads(response.body))
                assert b"train.ipynb" not in response.body
            with_query = await view.get("?find=x&sort=free")
            assert with_query.headers["Location"] == f"{PREFIX}login?find=x&sort=free"

    run(scenario())


@pytest.mark.promise("view-25")
def test_while_the_hub_is_down(document: dict[str, Any], tmp_path: Path) -> None:
    """503, and when to ask again."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            response = await view.get("api/v1/nodes", "hub is down")
            assert (response.code, response.headers["Retry-After"]) == (503, "1")
            assert json.loads(response.body)["message"].startswith("The hub is down")

    run(scenario())


@pytest.mark.promise("view-26", "The view only shows: each verb but GET is refused")
def test_other_verbs(document: dict[str, Any], tmp_path: Path) -> None:
    """Also for an administrator."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            for route in document["paths"].keys() - WITH_A_CREDENTIAL_OF_ITS_OWN:
                for verb in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
                    response = await view.get(asked(route), "admin", method=verb)
                    assert response.code == 405, (route, verb)

    run(scenario())


@pytest.mark.promise("view-27", "No browser keeps, frames or embeds what the view answers")
def test_headers(document: dict[str, Any], tmp_path: Path) -> None:
    """On answers, errors, redirects and files."""

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            for route in [*map(asked, document["paths"]), "nowhere", "static/nothing.js"]:
                for caller in ("alice", None):
                    if route == "api/v1/events" and caller:
                        continue
                    headers = (await view.get(route, caller)).headers
                    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"], route
                    assert headers["X-Content-Type-Options"] == "nosniff", route
                    assert headers["Cache-Control"] in ("no-store", "no-cache"), route
                    assert "Server" not in headers, route

    run(scenario())


@pytest.mark.promise(
    "view-28", "Prometheus reads with a token of its own, which opens nothing else"
)
def test_the_metrics_token(tmp_path: Path) -> None:
    """It is read anew each time; another one, or none, opens nothing; nor does it open the API."""
    file = tmp_path / "metrics-token"
    file.write_text("for prometheus\n")

    async def scenario() -> None:
        async with running_view(tmp_path, metrics_token_file=file) as view:

            async def code(route: str, token: str) -> int:
                return (await view.get(route, Authorization=f"Bearer {token}")).code

            assert await code("metrics", "for prometheus") == 200
            assert await code("metrics", "guessed") == 403
            assert await code("api/v1/nodes", "for prometheus") == 403
            assert (await view.get("metrics", "alice")).code == 403
            assert (await view.get("metrics", "admin")).code == 200
            file.write_text("another")
            assert await code("metrics", "for prometheus") == 403
            file.write_text("")
            assert await code("metrics", "") == 403
            file.unlink()
            assert await code("metrics", "another") == 403

    run(scenario())


def test_a_mistake_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a 500 without a word of what went wrong, and the others are served."""

    def fails(self: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(api.OpenApiHandler, "get", fails)

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            response = await view.get("api/v1/openapi.yaml", "alice")
            assert response.code == 500 and b"secret" not in response.body
            assert (await view.get("api/v1/nodes", "alice")).code == 200

    run(scenario())


def test_the_last_reports_are_counted(tmp_path: Path) -> None:
    """What came just before the end is told to each part; one that fails keeps no other."""
    told: list[set[str]] = []

    def fails(*_: object) -> None:
        raise RuntimeError("a mistake")

    async def scenario() -> None:
        async with running_view(tmp_path) as view:
            view.view.state.listeners[:0] = [fails, told.append]
            view.view.state.closers.insert(0, fails)
            await view.node("node-a")
        assert set().union(*told) == {"node-a"}

    run(scenario())


def test_a_port_for_nodes_alone(tmp_path: Path) -> None:
    """There, and at the root, nodes report; people find nothing there."""

    async def scenario() -> None:
        from tests.support.ports import free_ports

        (port,) = free_ports(1)
        async with running_view(tmp_path, report_port=port) as view:
            everything, view.view.port = view.view.port, port
            assert (await view.get("api/v1/nodes", "admin")).code == 404
            await view.node("node-a")
            view.view.port = everything
            assert (await view.get("api/v1/nodes/node-a", "admin")).code == 200

    run(scenario())
