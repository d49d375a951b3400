"""States of the stub, and how a test sets them."""

from __future__ import annotations

from typing import Any

from tests.browser.jupyter import JupyterProcess

GIB = 1 << 30

State = dict[str, Any]


def tenant(name: str, owner: str, *, mine: bool = False, **fields: object) -> State:
    return {"name": name, "owner": owner, "mine": mine, "tenant_id": name + owner, **fields}


def queue(*tenants: State) -> list[State]:
    return [{**each, "position": place} for place, each in enumerate(tenants, start=1)]


def kernel(name: str, state: str, **fields: object) -> State:
    return {
        "kernel_id": name.partition(".")[0],
        "name": "python3",
        "path": f"notebooks/{name}",
        "tenant_id": name,
        "state": state,
        "bytes_allocated": 0,
        "position": None,
        "reason": "",
        **fields,
    }


def device(number: int = 0, **fields: object) -> State:
    return {
        "id": f"{0x5C1A90F3 + 0x1B20C4A7 * number:08x}" + "0" * 24,
        "name": "NVIDIA H200",
        "bytes_total": 140 * GIB,
        "bytes_used": 35 * GIB,
        "lost": False,
        "holder": None,
        "queue": [],
        **fields,
    }


def state(*devices: State, kernels: list[State] | None = None, **fields: object) -> State:
    return {
        "version": 1,
        "scheduler": "up",
        "message": "",
        "user": "alice",
        "devices": list(devices),
        "kernels": kernels or [],
        **fields,
    }


def busy_state() -> State:
    """Two devices, three users, five kernels: what a shared machine looks like in the afternoon."""
    return state(
        device(
            0,
            bytes_used=92 * GIB,
            holder=tenant("train-resnet.ipynb", "alice", mine=True, held_s=41),
            queue=queue(
                tenant("protein folding, second try.ipynb", "bob", waited_s=38),
                tenant("explore.ipynb", "alice", mine=True, waited_s=12),
                tenant("", "another user", waited_s=4),
            ),
        ),
        device(1, bytes_used=11 * GIB, holder=tenant("diffusion.ipynb", "carol", held_s=320)),
        kernels=[
            kernel("train-resnet.ipynb", "holds", bytes_allocated=61 * GIB),
            kernel(
                "explore.ipynb",
                "waits",
                position=2,
                bytes_allocated=8 * GIB,
                reason="train-resnet.ipynb has the GPU and bob waits before you.",
            ),
            kernel("thesis plots.ipynb", "idle"),
        ],
    )


class StubControl:
    """Sets what the stub answers, and reads what it was asked."""

    def __init__(self, jupyter: JupyterProcess) -> None:
        self.jupyter = jupyter

    def set(self, state: State, *, emit: bool = True, refusal: str = "") -> None:
        body = {"state": state, "emit": emit, "refusal": refusal}
        self.jupyter.request("POST", "gpushare/stub", body)

    @property
    def asked(self) -> int:
        """How often the browser asked for the state."""
        return int(self.jupyter.request("GET", "gpushare/stub")["asked"])

    @property
    def released(self) -> list[str]:
        return list(self.jupyter.request("GET", "gpushare/stub")["released"])
