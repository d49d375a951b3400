"""The scheduler's HTTP API as methods. One connection per request: requests are rare, and a
scheduler that was started again in between needs no special care."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from .connection import UnixHTTPConnection
from .errors import ClientError, RequestRefused, SchedulerUnavailable
from .paths import HOOK_SOCKET, http_socket_path, own_hub_token, trusted_uids
from .stream import STREAM_TIMEOUT_S, StatusStream

if TYPE_CHECKING:
    from concurrent.futures import Executor

_API = "/api/v1"
_ANSWER_BYTES_MAX = 64 << 20
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class TenantRegistration:
    """What the scheduler answers to a new tenant. `socket` is the path of `hook.sock`, beside the
    socket that answered: the directory of both may be mounted at another place. If it has
    said its need, `placement` tells where it was placed, or why not. `visible_devices` is then for
    CUDA_VISIBLE_DEVICES, and empty if it was not placed. `class_note` says why it does not run as
    the class that it asked for."""

    tenant_id: str
    token: str
    socket: str
    visible_devices: str = ""
    placement: str = ""
    class_note: str = ""


class SchedulerClient:
    """Blocking calls; each raises a ClientError whose message is fit for a person."""

    def __init__(
        self,
        socket_path: Path | None = None,
        *,
        uids: frozenset[int] | None = None,
        timeout_s: float = 5.0,
        hub_token: str | None = None,
    ) -> None:
        """`hub_token` proves who we are to the scheduler of a hub; the environment's by default."""
        self.socket_path = http_socket_path() if socket_path is None else socket_path
        self._uids = trusted_uids() if uids is None else uids
        self._timeout_s = timeout_s
        token = own_hub_token() if hub_token is None else hub_token
        self._headers = {"Authorization": f"token {token}"} if token else {}

    def status(self) -> dict[str, Any]:
        """Devices, tenants, queues and settings, as far as the caller may see them."""
        return self._ask("GET", "/status")

    def timeline(self) -> dict[str, Any]:
        """Who had each device in the last quarter of an hour, as far as the caller may see it. A
        scheduler of a version that keeps none has an empty one."""
        try:
            return self._ask("GET", "/timeline")
        except RequestRefused as refused:
            if refused.status != http.client.NOT_FOUND:
                raise
            return {"window_s": 0.0, "tenants": [], "devices": []}

    def register_tenant(
        self,
        name: str,
        kind: str,
        *,
        kernel_id: str | None = None,
        wish: Mapping[str, str] = MappingProxyType({}),
    ) -> TenantRegistration:
        """A place and a fresh token for a kernel (`kind="kernel"`) or a command (`"run"`). A `wish`
        may have `need`, `need_devices` and `class`."""
        body = {"name": name, "kind": kind, **wish}
        if kernel_id is not None:
            body["kernel_id"] = kernel_id
        answer = self._ask("POST", "/tenants", body)
        return TenantRegistration(
            answer["tenant_id"],
            answer["token"],
            str(self.socket_path.absolute().with_name(HOOK_SOCKET)),
            answer.get("visible_devices", ""),
            answer.get("placement", ""),
            answer.get("class_note", ""),
        )

    def remove_tenant(self, tenant_id: str) -> None:
        """The kernel has ended: its token is worth nothing from now on. May be repeated."""
        self._ask("DELETE", f"/tenants/{quote(tenant_id, safe='')}")

    def interrupt_tenant(self, tenant_id: str) -> None:
        """Fail the calls that wait at the tenant's gates."""
        self._ask("POST", f"/tenants/{quote(tenant_id, safe='')}/interrupt", {})

    def past_waits(self, tenant_id: str) -> dict[str, Any]:
        """When and why the tenant waited lately. RequestRefused (404) by an older scheduler."""
        return self._ask("GET", f"/tenants/{quote(tenant_id, safe='')}/waits")

    def release_tenant(self, tenant_id: str) -> None:
        """Ask for the tenant's turn back now. RequestRefused (409) when it has none."""
        self._ask("POST", f"/tenants/{quote(tenant_id, safe='')}/release", {})

    def hold_tenant(self, tenant_id: str, hold_s: float) -> float:
        """Keep the tenant's turn, or its next one; 0 ends that. Answers with the time that it is
        kept at most."""
        path = f"/tenants/{quote(tenant_id, safe='')}/hold"
        return float(self._ask("POST", path, {"hold_s": hold_s})["hold_s"])

    def evict_tenant(self, tenant_id: str) -> None:
        """Its turn and its memory leave the device until its next turn."""
        self._ask("POST", f"/tenants/{quote(tenant_id, safe='')}/evict", {})

    def set_tenant_class(self, tenant_id: str, name: str) -> None:
        """It runs as this class from now on. RequestRefused (403) when its owner may not."""
        self._ask("PATCH", f"/tenants/{quote(tenant_id, safe='')}", {"class": name})

    def set_tenant_need(self, tenant_id: str, need: str) -> None:
        """It needs so much on its devices. RequestRefused (409) when they have not so much left."""
        self._ask("PATCH", f"/tenants/{quote(tenant_id, safe='')}", {"need": need})

    def boost_tenant(self, tenant_id: str) -> None:
        """It is served next, once."""
        self._ask("POST", f"/tenants/{quote(tenant_id, safe='')}/boost", {})

    def set_device_mode(self, device_id: str, mode: str) -> None:
        """`paused`, `drained` or `open`."""
        self._ask("PUT", f"/devices/{quote(device_id, safe='')}/mode", {"mode": mode})

    def audit(self, count: int) -> list[dict[str, Any]]:
        """What administrators have done, the newest last."""
        entries: list[dict[str, Any]] = self._ask("GET", f"/audit?count={count}")["entries"]
        return entries

    def tell_busy(self, tenant_id: str, busy: bool) -> None:
        """A cell of the kernel began or ended: for kernels that cannot say so themselves."""
        self._ask("POST", f"/tenants/{quote(tenant_id, safe='')}/busy", {"busy": busy})

    def follow(self) -> StatusStream:
        """The status now, and again whenever it has changed."""
        connection = UnixHTTPConnection(
            self.socket_path, uids=self._uids, timeout_s=STREAM_TIMEOUT_S
        )
        with self._explained(connection):
            connection.request("GET", _API + "/events", headers=self._headers)
            sock = connection.sock
            response = connection.getresponse()
            if response.status >= http.client.BAD_REQUEST:
                _read(response)
            return StatusStream(connection, sock, response)

    def change_settings(self, changes: Mapping[str, object]) -> dict[str, Any]:
        """Change some settings; answers with all that are in force now."""
        return self._ask("PATCH", "/settings", changes)

    def unset_setting(self, name: str) -> dict[str, Any]:
        """What was set live counts no longer; answers with all settings in force now."""
        return self._ask("DELETE", f"/settings/{quote(name, safe='')}")

    def explain_settings(self) -> dict[str, Any]:
        """Of each setting its value, where it comes from and what it shadows; the settings file."""
        return self._ask("GET", "/settings")

    def shut_down(self) -> None:
        """Ask it to end. RequestRefused (409) while a process has the GPU open."""
        self._ask("POST", "/shutdown", {})

    def _ask(
        self, method: str, route: str, body: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        connection = UnixHTTPConnection(
            self.socket_path, uids=self._uids, timeout_s=self._timeout_s
        )
        data = None if body is None else json.dumps(body).encode()
        headers = dict(self._headers)
        if data is not None:
            headers["Content-Type"] = "application/json"
        with contextlib.closing(connection), self._explained(connection):
            connection.request(method, _API + route, body=data, headers=headers)
            response = connection.getresponse()
            return _read(response)

    @contextlib.contextmanager
    def _explained(self, connection: UnixHTTPConnection) -> Iterator[None]:
        """What goes wrong with a connection, in words; a failed one is closed."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise SchedulerUnavailable(
                f"The scheduler at {self.socket_path} ended the conversation ({error!r}). "
                f"Try again, and look into its log if that does not help."
            ) from error
        except ClientError:
            connection.close()
            raise


class AsyncSchedulerClient:
    """The same calls for an event loop: each runs the blocking one in a thread."""

    def __init__(self, client: SchedulerClient, executor: Executor | None = None) -> None:
        self._client = client
        self._executor = executor

    async def status(self) -> dict[str, Any]:
        return await self._run(self._client.status)

    async def timeline(self) -> dict[str, Any]:
        return await self._run(self._client.timeline)

    async def register_tenant(
        self, name: str, kind: str, *, kernel_id: str | None = None
    ) -> TenantRegistration:
        return await self._run(
            lambda: self._client.register_tenant(name, kind, kernel_id=kernel_id)
        )

    async def remove_tenant(self, tenant_id: str) -> None:
        await self._run(lambda: self._client.remove_tenant(tenant_id))

    async def interrupt_tenant(self, tenant_id: str) -> None:
        await self._run(lambda: self._client.interrupt_tenant(tenant_id))

    async def release_tenant(self, tenant_id: str) -> None:
        await self._run(lambda: self._client.release_tenant(tenant_id))

    async def hold_tenant(self, tenant_id: str, hold_s: float) -> float:
        return await self._run(lambda: self._client.hold_tenant(tenant_id, hold_s))

    async def evict_tenant(self, tenant_id: str) -> None:
        await self._run(lambda: self._client.evict_tenant(tenant_id))

    async def tell_busy(self, tenant_id: str, busy: bool) -> None:
        await self._run(lambda: self._client.tell_busy(tenant_id, busy))

    async def change_settings(self, changes: Mapping[str, object]) -> dict[str, Any]:
        return await self._run(lambda: self._client.change_settings(changes))

    async def _run(self, call: Callable[[], Answer]) -> Answer:
        import asyncio  # here, since the command line starts faster without it

        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


def _read(response: http.client.HTTPResponse) -> dict[str, Any]:
    """The answer's JSON object, or RequestRefused with the scheduler's own sentence."""
    status, raw = response.status, response.read(_ANSWER_BYTES_MAX)
    try:
        answer = json.loads(raw) if raw else {}
    except ValueError:
        answer = {"message": f"The scheduler answered {raw[:100]!r}, which is not JSON."}
        status = max(status, http.client.INTERNAL_SERVER_ERROR)
    if not isinstance(answer, dict):
        answer = {"answer": answer}
    if status >= http.client.BAD_REQUEST:
        message = answer.get("message", f"The scheduler answered with HTTP status {status}.")
        later = response.getheader("Retry-After") is not None
        raise RequestRefused(status, str(message), may_be_met_later=later)
    return answer
