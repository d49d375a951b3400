"""Who a node of Kubernetes is: its scheduler shows the token that the kubelet has put into its pod,
and the API server says whose it is and on which node that pod runs.

Nobody has to hand out tokens, and one that is stolen ends with its pod.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from jupyter_gpushare.reports.node_tokens import is_name

from .credentials import NodeRefused

log = logging.getLogger(__name__)

AUDIENCE = "gpushare"
KEPT_S = 60.0
REFUSED_KEPT_S = 5.0
ANSWER_S_MAX = 5.0
ANSWER_BYTES_MAX = 4 << 20
QUESTIONS_MAX = 10
"""Under way at once; others wait."""
WAIT_S_MAX = 15.0
"""For one's turn and two answers: less than a node waits for us. Of tokens that somebody invents by
the thousand, those wait no longer that nobody waits for any more."""
TOKENS_KEPT_MAX = 8192
IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_USER = "system:serviceaccount:"
_EXTRA = "authentication.kubernetes.io/"
_LABEL = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
"""What a name in a path may be: nothing that leads elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """Where the API of the cluster is, and as whom it is asked."""

    url: str
    token_file: Path
    """Read for each question: the kubelet replaces it."""
    ca_file: Path | None = None


def api_server(environ: Mapping[str, str], directory: Path = IN_POD) -> ApiServer | None:
    """Of the cluster in which we are a pod; None where we are none."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not (directory / "token").is_file():
        return None
    name = f"[{host}]" if ":" in host else host
    return ApiServer(
        url=f"https://{name}:{port or 443}",
        token_file=directory / "token",
        ca_file=directory / "ca.crt",
    )


@dataclass(frozen=True, slots=True)
class _KnownToken:
    asked_s: float
    found: str | NodeRefused


class _NoAnswer(Exception):
    """The API server does not say."""


class TokenReviews:
    """`accounts` are the service accounts that may report, as `NAMESPACE:NAME`."""

    def __init__(
        self,
        server: ApiServer,
        accounts: Collection[str],
        *,
        audience: str = AUDIENCE,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._accounts = frozenset(accounts)
        self._audience = audience
        self._clock_s = clock_s
        self._questions = asyncio.Semaphore(QUESTIONS_MAX)
        self._names: OrderedDict[bytes, _KnownToken] = OrderedDict()
        self._refused: OrderedDict[bytes, _KnownToken] = OrderedDict()
        self._client: SimpleAsyncHTTPClient | None = None

    def may_know(self, token: str) -> bool:
        """A JSON Web Token has two dots."""
        return token.count(".") == 2

    async def name_of(self, token: str) -> str:
        key = hashlib.sha256(token.encode()).digest()
        known = self._names.get(key) or self._refused.get(key)
        if known is not None and self._clock_s() - known.asked_s < _kept_s(known):
            return _name_or_raise(known.found)
        found: str | NodeRefused
        try:
            found = await asyncio.wait_for(self._in_turn(token), WAIT_S_MAX)
        except NodeRefused as refused:
            found = NodeRefused(refused.status, str(refused))  # without its traceback
        except (_NoAnswer, asyncio.TimeoutError) as error:
            log.warning("the API server does not say whose a node's token is: %r", error)
            raise NodeRefused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "The API server of Kubernetes does not say whose this token is. The node tries "
                "again by itself; look at the log of the view if that does not end.",
            ) from error
        self._keep(key, found)
        return _name_or_raise(found)

    async def _in_turn(self, token: str) -> str:
        async with self._questions:
            return await self._ask(token)

    def _keep(self, key: bytes, found: str | NodeRefused) -> None:
        self._names.pop(key, None)
        self._refused.pop(key, None)
        # Apart, so that invented tokens do not make us forget those of nodes.
        kept = self._names if isinstance(found, str) else self._refused
        kept[key] = _KnownToken(self._clock_s(), found)
        if len(kept) > TOKENS_KEPT_MAX:
            kept.popitem(last=False)

    async def _ask(self, token: str) -> str:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience]},
        }
        answer = await self._request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
        status = _object(answer, "status")
        if status.get("authenticated") is not True:
            raise NodeRefused(
                HTTPStatus.UNAUTHORIZED,
                "Kubernetes does not know this token, or not any more. Let the node's pod have a "
                f"projected token with the audience {self._audience}.",
            )
        if self._audience not in _texts(status.get("audiences")):
            raise NodeRefused(
                HTTPStatus.UNAUTHORIZED,
                f"This token was made for somebody else. Let the node's pod have a projected token "
                f"with the audience {self._audience}.",
            )
        user = _object(status, "user")
        account = str(user.get("username")).removeprefix(_USER)
        if account not in self._accounts or not str(user.get("username")).startswith(_USER):
            raise NodeRefused(
                HTTPStatus.FORBIDDEN,
                f"The account {account[:200]!r} may not report to the view. Start the view with "
                f"--service-account for that of the schedulers.",
            )
        return await self._node_of(_object(user, "extra"), account)

    async def _node_of(self, extra: dict[str, Any], account: str) -> str:
        """From Kubernetes 1.30 on the token itself says it; before, its pod does."""
        if (name := _one(extra, "node-name")) is not None:
            return _checked(name)
        pod, uid = _one(extra, "pod-name"), _one(extra, "pod-uid")
        namespace, _, account_name = account.partition(":")
        if pod is None or not (_LABEL.fullmatch(pod) and _LABEL.fullmatch(namespace)):
            raise _no_node("is bound to no pod")
        try:
            found = await self._request("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}")
        except HTTPClientError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                raise _no_node("is of a pod that is gone") from error
            raise _NoAnswer(f"asked for the pod {namespace}/{pod}: {error}") from error
        spec = _object(found, "spec")
        if spec.get("serviceAccountName") != account_name:
            raise _no_node("is of a pod with another account")
        if uid is not None and _object(found, "metadata").get("uid") != uid:
            raise _no_node("is of an earlier pod of this name")
        return _checked(spec.get("nodeName"))

    def _http(self) -> SimpleAsyncHTTPClient:
        """Made when the loop runs. Not shared: others may have given Tornado another class."""
        if self._client is None:
            self._client = SimpleAsyncHTTPClient(
                force_instance=True, max_clients=QUESTIONS_MAX, max_body_size=ANSWER_BYTES_MAX
            )
        return self._client

    async def _request(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Raises HTTPClientError for 404 alone, and _NoAnswer for all else that is no answer."""
        try:
            mine = self._server.token_file.read_text("ascii").strip()
            request = HTTPRequest(
                f"{self._server.url}{path}",
                method=method,
                body=None if body is None else json.dumps(body),
                headers={"Authorization": f"Bearer {mine}", "Content-Type": "application/json"},
                ca_certs=str(self._server.ca_file) if self._server.ca_file else None,
                connect_timeout=ANSWER_S_MAX,
                request_timeout=ANSWER_S_MAX,
                follow_redirects=False,
            )
            answer = await self._http().fetch(request)
            found = json.loads(answer.body)
        except HTTPClientError as error:
            if method == "GET" and error.code == HTTPStatus.NOT_FOUND:
                raise
            raise _NoAnswer(str(error)) from error
        except (OSError, ValueError, RecursionError) as error:
            raise _NoAnswer(repr(error)) from error
        if not isinstance(found, dict):
            raise _NoAnswer("the answer is no object")
        return found


def _kept_s(known: _KnownToken) -> float:
    return KEPT_S if isinstance(known.found, str) else REFUSED_KEPT_S


def _name_or_raise(found: str | NodeRefused) -> str:
    if isinstance(found, str):
        return found
    raise NodeRefused(found.status, str(found))  # a fresh one: its traceback grows each time


def _object(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = found.get(name)
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _one(extra: Mapping[str, Any], name: str) -> str | None:
    texts = _texts(extra.get(f"{_EXTRA}{name}"))
    return texts[0] if len(texts) == 1 else None


def _checked(name: object) -> str:
    if not isinstance(name, str) or not is_name(name):
        raise _no_node("is of a pod that is on no node")
    return name


def _no_node(why: str) -> NodeRefused:
    return NodeRefused(
        HTTPStatus.FORBIDDEN,
        f"This token names no node: it {why}. Let the scheduler of each node report with the "
        f"projected token of its own pod.",
    )
