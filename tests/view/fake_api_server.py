"""What the view asks of a Kubernetes API server, answered in the shapes of the real one."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

OURS = "the view's own token"
ACCOUNT = "gpushare:gpushare-scheduler"


class FakeApiServer:
    """`knows` says what a token is; `pods` are by namespace and name."""

    def __init__(self) -> None:
        self.reviews: dict[str, dict[str, Any]] = {}
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.asked: Counter[str] = Counter()
        self.fails_with = 0
        self.raw: bytes | None = None
        self.url = ""

    def knows(
        self,
        token: str,
        *,
        account: str = ACCOUNT,
        audiences: tuple[str, ...] = ("gpushare",),
        **extra: str,
    ) -> None:
        """`extra`: pod_name, pod_uid, node_name, as far as this Kubernetes says them."""
        namespace = account.partition(":")[0]
        self.reviews[token] = {
            "authenticated": True,
            "user": {
                "username": f"system:serviceaccount:{account}",
                "uid": "8c8f4c3e-0000-4000-8000-000000000000",
                "groups": [
                    "system:serviceaccounts",
                    f"system:serviceaccounts:{namespace}",
                    "system:authenticated",
                ],
                "extra": {
                    "authentication.kubernetes.io/credential-id": ["JTI=1f3c"],
                    **{
                        f"authentication.kubernetes.io/{key.replace('_', '-')}": [value]
                        for key, value in extra.items()
                    },
                },
            },
            "audiences": list(audiences),
        }

    def has_pod(
        self, name: str, *, node: str | None, uid: str = "pod-uid", account: str = ACCOUNT
    ) -> None:
        namespace, _, account_name = account.partition(":")
        self.pods[namespace, name] = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "spec": {
                "serviceAccountName": account_name,
                "containers": [],
                **({} if node is None else {"nodeName": node}),
            },
            "status": {"phase": "Running"},
        }

    def start(self) -> None:
        arguments = {"server": self}
        app = Application(
            [
                ("/apis/authentication.k8s.io/v1/tokenreviews", _Reviews, arguments),
                ("/api/v1/namespaces/([^/]+)/pods/([^/]+)", _Pods, arguments),
            ],
            log_function=lambda handler: None,
        )
        self._server = HTTPServer(app)
        sockets = bind_sockets(0, "127.0.0.1")
        self._server.add_sockets(sockets)
        self.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        self._server.stop()


class _Handler(RequestHandler):
    def initialize(self, server: FakeApiServer) -> None:
        self.server = server

    def prepare(self) -> None:
        server = self.server
        server.asked[self.request.method or ""] += 1
        if server.raw is not None:
            self.finish(server.raw)
        elif server.fails_with:
            self.says(server.fails_with)
        elif self.request.headers.get("Authorization") != f"Bearer {OURS}":
            self.says(401)

    def says(self, code: int) -> None:
        self.set_status(code)
        self.finish({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code})


class _Reviews(_Handler):
    def post(self) -> None:
        asked = json.loads(self.request.body)
        assert asked["apiVersion"] == "authentication.k8s.io/v1"
        assert asked["kind"] == "TokenReview"
        spec = asked["spec"]
        found = self.server.reviews.get(spec["token"])
        if found is None or not set(found["audiences"]) & set(spec["audiences"]):
            status: dict[str, Any] = {"user": {}, "error": "invalid bearer token"}
        else:
            status = found
        self.set_status(201)
        self.finish({**asked, "metadata": {"creationTimestamp": None}, "status": status})


class _Pods(_Handler):
    def get(self, namespace: str, name: str) -> None:
        pod = self.server.pods.get((namespace, name))
        if pod is None:
            self.says(404)
        else:
            self.finish(pod)
