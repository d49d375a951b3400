"""The kubelet's interface for device plugins, v1beta1, over gRPC: our socket, and the call that
registers it. It decides nothing (registration.py does)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc

from jupyter_gpushare.client.paths import SOCKET_PATH_BYTES_MAX

from .api import device_plugin_pb2 as api
from .registration import Identity
from .seats import RESOURCE, Grant, seat_ids

VERSION = "v1beta1"
ENDPOINT = "gpushare.sock"
KUBELET_SOCKET = "kubelet.sock"
ANSWER_S_MAX = 20.0
"""A kubelet that is just starting may be slow; it connects to our socket before it answers."""
_GRACE_S = 0.5


class CannotServe(Exception):
    """The message says why, in a clause."""


class CannotRegister(Exception):
    """The same; `refused`: the kubelet has said no."""

    def __init__(self, why: str, *, refused: bool) -> None:
        super().__init__(why)
        self.refused = refused


class Seats:
    """The list of seats as the kubelets that watch it are told."""

    def __init__(self, number: int) -> None:
        self._ids = seat_ids(number)
        self._healthy = True
        self._ended = 0
        """How often all watches have been ended."""
        self._changed = asyncio.Condition()

    async def advertise(self, healthy: bool) -> None:
        async with self._changed:
            self._healthy = healthy
            self._changed.notify_all()

    async def end_watches(self) -> None:
        async with self._changed:
            self._ended += 1
            self._changed.notify_all()

    async def lists(self) -> AsyncIterator[api.ListAndWatchResponse]:
        """The list now, and whenever it has changed."""
        began, told = self._ended, self._healthy

        def is_new() -> bool:
            return (self._ended, self._healthy) != (began, told)

        while began == self._ended:
            told = self._healthy
            health = "Healthy" if told else "Unhealthy"
            devices = [api.Device(ID=name, health=health) for name in self._ids]
            yield api.ListAndWatchResponse(devices=devices)
            async with self._changed:
                await self._changed.wait_for(is_new)


class Endpoint:
    """Our socket in the kubelet's directory, served from `open` to `close`."""

    def __init__(
        self,
        directory: Path,
        seats: Seats,
        *,
        grant: Callable[[], Grant],
        watched: Callable[[bool], None],
    ) -> None:
        self.path = directory / ENDPOINT
        self._seats = seats
        self._grant = grant
        self._watched = watched
        self._server: grpc.aio.Server | None = None
        self._identity: Identity | None = None

    async def open(self) -> Identity:
        """Raises CannotServe. It is bound under another name and then moved into its place, so
        that nobody meets a socket that is not served, and gRPC, which removes the name that it has
        bound, removes nobody else's."""
        await self.close()
        await _check_place(self.path)
        bound = self.path.with_name(f".{secrets.token_hex(4)}.sock")
        if len(os.fsencode(bound)) > SOCKET_PATH_BYTES_MAX:
            raise CannotServe(
                f"the path {bound} is longer than the {SOCKET_PATH_BYTES_MAX} bytes that a socket "
                f"may have"
            )
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self._handlers(),))
        try:
            server.add_insecure_port(f"unix:{bound}")
            await server.start()
            identity = identity_of(bound)
            bound.replace(self.path)
        except (RuntimeError, OSError) as error:
            await server.stop(None)
            raise CannotServe(f"{self.path} cannot be made ({error})") from error
        self._server, self._identity = server, identity
        assert identity is not None
        return identity

    async def close(self) -> None:
        """End the watches, and remove the socket if it is still ours."""
        server, self._server = self._server, None
        if server is None:
            return
        if identity_of(self.path) == self._identity:
            with contextlib.suppress(OSError):
                self.path.unlink()
        await self._seats.end_watches()
        await server.stop(_GRACE_S)

    def _handlers(self) -> grpc.GenericRpcHandler:
        """Other methods of the interface are answered with UNIMPLEMENTED; no kubelet calls them,
        because the options say that there are none."""
        return grpc.method_handlers_generic_handler(
            f"{VERSION}.DevicePlugin",
            {
                "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                    _options, api.Empty.FromString, api.DevicePluginOptions.SerializeToString
                ),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self._list, api.Empty.FromString, api.ListAndWatchResponse.SerializeToString
                ),
                "Allocate": grpc.unary_unary_rpc_method_handler(
                    self._allocate,
                    api.AllocateRequest.FromString,
                    api.AllocateResponse.SerializeToString,
                ),
            },
        )

    async def _list(self, request: api.Empty, context: Any) -> AsyncIterator[Any]:
        self._watched(True)
        try:
            async for each in self._seats.lists():
                yield each
        finally:
            self._watched(False)

    async def _allocate(self, request: api.AllocateRequest, context: Any) -> api.AllocateResponse:
        grant = self._grant()
        return api.AllocateResponse(
            container_responses=[_granted(grant) for _ in request.container_requests]
        )


async def _options(request: api.Empty, context: Any) -> api.DevicePluginOptions:
    return api.DevicePluginOptions()


def _granted(grant: Grant) -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(
        envs=dict(grant.environment),
        mounts=[
            api.Mount(container_path=each.inside, host_path=each.on_node, read_only=True)
            for each in grant.mounts
        ],
    )


async def register(kubelet: Path) -> None:
    """At this socket of a kubelet. Raises CannotRegister."""
    request = api.RegisterRequest(
        version=VERSION,
        endpoint=ENDPOINT,
        resource_name=RESOURCE,
        options=api.DevicePluginOptions(),
    )
    async with grpc.aio.insecure_channel(f"unix:{kubelet}") as channel:
        call = channel.unary_unary(
            f"/{VERSION}.Registration/Register",
            request_serializer=api.RegisterRequest.SerializeToString,
            response_deserializer=api.Empty.FromString,
        )
        try:
            await call(request, timeout=ANSWER_S_MAX)
        except grpc.aio.AioRpcError as error:
            raise CannotRegister(words_of(error), refused=not _is_silence(error)) from error


def words_of(error: grpc.aio.AioRpcError) -> str:
    """What the other side said, or gRPC in its place, on one line and not too long."""
    said = " ".join((error.details() or error.code().name).split())
    return said[:300].rstrip(".")


def _is_silence(error: grpc.aio.AioRpcError) -> bool:
    return error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def identity_of(path: Path) -> Identity | None:
    """Tells a socket from one that is made anew: numbers of files are used again. None where
    nothing is."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


async def _check_place(path: Path) -> None:
    """What a plugin before us has left may be replaced. Raises CannotServe for all else."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotServe(f"{path} cannot be looked at ({error.strerror})") from error
    if not stat.S_ISSOCK(found.st_mode):
        raise CannotServe(f"{path} is not a socket; move it away")
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        probe.connect(os.fspath(path))
    except OSError:
        return
    finally:
        probe.close()
    raise CannotServe(f"another plugin serves {path} already; let one run on each node")
