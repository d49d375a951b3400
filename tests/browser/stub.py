"""States of the stub, and how a test sets them."""

from __future__ import annotations

from typing import Any

from tests.browser.jupyter import JupyterProcess

GIB = 1 << 30

State = dict[str, Any]
WAIT = {"earliest_s": 34.0, "latest_s": 128.0, "used_s": 30.4, "share": 1 / 3}


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
        "runs_as": "interactive",
        "bytes_allocated": 0,
        "memory": [],
        "position": None,
        "hold_left_s": 0.0,
        "reason": "",
        **fields,
    }


def memory(number: int = 0, **fields: object) -> State:
    """Of the device with this number."""
    blank = {"bytes_resident": 0, "bytes_parked": 0, "bytes_fixed": 0, "cap_bytes": 0}
    return {"device": device_id(number), **blank, **fields}


def device_id(number: int) -> str:
    return f"{0x5C1A90F3 + 0x1B20C4A7 * number:08x}" + "0" * 24


def device(number: int = 0, **fields: object) -> State:
    return {
        "id": device_id(number),
        "name": "NVIDIA H200",
        "bytes_total": 140 * GIB,
        "bytes_used": 35 * GIB,
        "bytes_tenants": 30 * GIB,
        "bytes_foreign": 5 * GIB,
        "bytes_reserved": int(2.8 * GIB),
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
        "actions": ["release", "hold", "evict", "trim"],
        "hold_max_s": 600.0,
        "devices": list(devices),
        "kernels": kernels or [],
        **fields,
    }


def busy_state() -> State:
    """Two devices, three users, four kernels: what a shared machine looks like in the afternoon."""
    explore = tenant("explore.ipynb", "alice", mine=True, waited_s=12, wait=WAIT)
    resnet = tenant("train-resnet.ipynb", "alice", mine=True, held_s=41, hold_left_s=599)
    return state(
        device(
            0,
            bytes_used=125 * GIB,
            bytes_tenants=122 * GIB,
            bytes_foreign=3 * GIB,
            tenants=[
                tenant("train-resnet.ipynb", "alice", mine=True, bytes_resident=61 * GIB),
                tenant("explore.ipynb", "alice", mine=True, bytes_resident=8 * GIB),
                tenant("two devices.ipynb", "alice", mine=True, bytes_resident=2 * GIB),
                tenant("folding.ipynb", "bob", bytes_resident=40 * GIB),
                tenant("another user", "another user", bytes_resident=11 * GIB),
            ],
            holder=resnet,
            queue=queue(
                tenant("protein folding, second try.ipynb", "bob", waited_s=38),
                explore,
                tenant("", "another user", waited_s=4),
            ),
        ),
        device(
            1,
            bytes_used=11 * GIB,
            bytes_tenants=10 * GIB,
            bytes_foreign=1 * GIB,
            holder=tenant("diffusion.ipynb", "carol", held_s=320),
        ),
        kernels=[
            kernel(
                "train-resnet.ipynb",
                "holds",
                hold_left_s=599,
                memory=[
                    memory(
                        bytes_resident=61 * GIB,
                        bytes_fixed=GIB // 2,
                        kinds={
                            "mapped": 58 * GIB,
                            "plain": 5 * GIB // 2,
                            "graphs": 3 * GIB // 8,
                            "arrays": GIB // 8,
                        },
                    )
                ],
            ),
            kernel(
                "explore.ipynb",
                "waits",
                tenant_id=explore["tenant_id"],
                position=2,
                memory=[memory(bytes_resident=8 * GIB, bytes_parked=12 * GIB, cap_bytes=40 * GIB)],
                wait=WAIT,
                reason="Waiting for train-resnet.ipynb.",
            ),
            kernel(
                "thesis plots.ipynb",
                "idle",
                memory=[memory(bytes_parked=3 * GIB)],
                trim={"number": 1, "stage": "done", "bytes": 5 * GIB // 4, "message": ""},
            ),
            kernel(
                "two devices.ipynb", "idle", memory=_on_both(), trim={"number": 2, "stage": "runs"}
            ),
        ],
    )


def _on_both() -> list[State]:
    return [memory(number, bytes_resident=(2 + number) * GIB) for number in range(2)]


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
        return [kernel for kernel, action, _ in self.acted if action == "release"]

    @property
    def acted(self) -> list[list[Any]]:
        """Kernel, action and body of each request."""
        return list(self.jupyter.request("GET", "gpushare/stub")["acted"])
