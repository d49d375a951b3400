"""What each sub-command does. Each answers with a sentence or a view, or raises Unable."""

import os
import subprocess
import time
from typing import Any
from urllib.parse import quote

from .caches import CACHES
from .hook import Hook, hook_of
from .scheduler import ANSWER_S, SILENT, SchedulerRefused, ask, own_tenant, scheduler_status
from .view import NotebookView, notes_on_waiting, own_of, story_of
from .words import Unable, WordsRefused, clock, length

NO_NEED = "none"
_BAD_REQUEST = 400
_UNKNOWN_ROUTE = (405, 501)
_DOCTOR_S = 60.0
_LOOK_AGAIN_S = 0.005
_HOLD_MS_MAX = 2**32 - 1

HOLD_S_MAX = _HOLD_MS_MAX / 1000.0
"""More than any scheduler allows, which cuts it."""

_wished = {"hold_s": 0.0}
"""The hook was asked for a hold that it has not been able to tell the scheduler of."""


def show(notice: str) -> "NotebookView":
    """This kernel and the queue, as far as they can be learned."""
    try:
        kernel = hook_of(notice).describe()
        story = story_of(kernel)
    except Unable as problem:
        kernel, story = {}, str(problem)
    status, tenant = scheduler_status(), str(kernel.get("tenant", ""))
    # The need may have changed since the start; an older scheduler does not tell.
    started = os.environ.get("GPUSHARE_PLACEMENT", "")
    placement = own_of(status, own_tenant() if kernel else "").get("placement", started)
    notes = [str(note) for note in (placement, CACHES.note()) if note]
    return NotebookView(
        " ".join([story, *notes, *notes_on_waiting(status, tenant)]), status, tenant
    )


def queue(notice: str) -> "NotebookView":
    """Who has each GPU and who waits, without this kernel's story where it shares the GPU."""
    try:
        tenant, story = str(hook_of(notice).describe().get("tenant", "")), ""
    except Unable as problem:
        tenant, story = "", str(problem)
    status = scheduler_status()
    if status is None:
        story = story or SILENT
    return NotebookView(story, status, tenant, with_memory=False)


def evict(hook: "Hook") -> str:
    """Ask for the turn and the memory of this kernel to leave the device."""
    tenant = hook.describe()["tenant"]
    if not tenant:
        return "This kernel has not used the GPU yet, so nothing of it is there."
    ask("POST", "/tenants/{}/evict".format(quote(tenant, safe="")), {})
    return (
        "The memory of this kernel leaves the GPU as soon as the work that runs on it has ended. "
        "Memory that cannot move stays. The next GPU call brings it back."
    )


def trim(word: str) -> str:
    """Whether caches are given back in this kernel, and what came of it; `word` switches it."""
    if word not in ("", "on", "off"):
        raise WordsRefused(f"{word!r} is neither `on` nor `off`.")
    if word:
        CACHES.is_on = word == "on"
    return CACHES.story()


def class_now() -> str:
    """The class that this kernel runs as."""
    runs_as = own_of(scheduler_status(), own_tenant()).get("runs_as")
    if not runs_as:
        raise Unable("The scheduler does not tell which class this kernel has.")
    return str(runs_as)


def set_class(name: str) -> str:
    """Ask for another class; the scheduler knows which there are, and who may use which."""
    try:
        ask("PATCH", "/tenants/{}".format(quote(own_tenant(), safe="")), {"class": name})
    except SchedulerRefused as refused:
        if refused.status not in _UNKNOWN_ROUTE:
            raise
        raise Unable(
            "This scheduler cannot change the class of a notebook. Start a newer one, or set "
            "GPUSHARE_CLASS before the kernel starts."
        ) from None
    return f"This kernel runs as {name} until it is restarted."


def need_now() -> str:
    """What this kernel needs, as `set_need` takes it."""
    needed = int(_own().get("need_bytes") or 0)
    return f"{needed / 1024}KiB" if needed else NO_NEED


def show_need() -> str:
    """What this kernel has said that it needs, and where it was placed."""
    placement = _own().get("placement")
    return str(placement or "This kernel has said no need. `%gpushare need 20GiB` says one.")


def set_need(need: str, devices: str = "") -> str:
    """Say another need; the scheduler knows what the GPU has left."""
    body = {"need": need}
    if devices:
        body["need_devices"] = devices
    try:
        ask("PATCH", "/tenants/{}".format(quote(own_tenant(), safe="")), body)
    except SchedulerRefused as refused:
        if refused.status in _UNKNOWN_ROUTE or "There is no class" in str(refused):
            raise Unable(
                "This scheduler cannot change what a notebook needs. Start a newer one, or set "
                "GPUSHARE_NEED before the kernel starts."
            ) from None
        if refused.status == _BAD_REQUEST:
            raise WordsRefused(str(refused)) from None
        raise
    if need.lower() in ("0", NO_NEED):
        return "This kernel has taken back what it needed."
    return f"{show_need()} That counts where kernels are placed that start later."


def _own() -> Any:
    """What the scheduler tells of this kernel."""
    status = scheduler_status()
    if status is None:
        raise Unable(SILENT)
    return own_of(status, own_tenant())


def release(hook: "Hook") -> str:
    """Ask for the turn to be taken from this kernel, all its processes included."""
    before = hook.describe()
    status = scheduler_status()
    if before["connected"]:  # the wish has been told, and the scheduler tells what became of it
        _wished["hold_s"] = 0.0
    if _wished["hold_s"] or _hold_to_come_s(status, before):
        return _end_hold(hook, before)
    if before["running"] and not before["connected"]:
        return "No scheduler is connected. The GPU is given back at the end of the cell."
    if before["phase"] not in ("held", "closing") and not _tenant_holds(status, before):
        return "This kernel does not have the GPU, so there is nothing to release."
    hook.release()
    if _await(lambda: hook.describe()["phase"] not in ("held", "closing")):
        return "The GPU was given back. The next GPU call of this kernel asks for it again."
    return "The GPU is given back as soon as the work that runs on it has ended."


def hold(hook: "Hook", hold_s: float) -> str:
    """Ask for the turn to be kept; the scheduler says for how long it is."""
    before = hook.describe()
    if hold_s <= 0:
        return _end_hold(hook, before)
    if not _ask_to_hold(hook, before, hold_s):
        _wished["hold_s"] = hold_s
        if not before["running"] or not before["contexts_open"]:
            return f"This kernel will keep the GPU for {length(hold_s)} once it has it."
        if not before["connected"]:
            return "No scheduler is connected. This kernel makes the request when it finds one."
        return SILENT
    now = hook.describe()
    left_s = now["hold_left_ms"] / 1000
    if left_s <= 0:
        refused = own_of(scheduler_status(), now["tenant"]).get("hold_note")
        if refused:
            raise Unable(str(refused))
        raise Unable(
            "This scheduler does not let a notebook keep the GPU between cells. Ask its "
            "administrator for a longer `hold_max_s`."
        )
    cut = " That is as long as this scheduler allows." if left_s < hold_s - 1 else ""
    to_come_s = _hold_to_come_s(scheduler_status(), now)
    if to_come_s:
        return f"This kernel will keep the GPU for {length(to_come_s)} once it has it.{cut}"
    return f"This kernel keeps the GPU until {clock(left_s)}, between cells too.{cut}"


def hold_now(hook: "Hook") -> "tuple[float, bool]":
    """For how long this kernel keeps the GPU between cells, and whether that has begun."""
    kernel = hook.describe()
    if not kernel["connected"]:
        return _wished["hold_s"], False
    _wished["hold_s"] = 0.0
    to_come_s = _hold_to_come_s(scheduler_status(), kernel)
    return (to_come_s, False) if to_come_s else (kernel["hold_left_ms"] / 1000, True)


def doctor() -> str:
    """What `jupyter gpushare doctor` says, run by the Python that has it."""
    python = os.environ.get("GPUSHARE_SERVER_PYTHON")
    if not python:
        raise Unable(
            "This kernel does not know where jupyter-gpushare is installed. Run `jupyter gpushare "
            "doctor` in a terminal of the Jupyter server."
        )
    command = [python, "-E", "-m", "jupyter_gpushare.cli.main", "doctor"]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_DOCTOR_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unable(f"The doctor cannot run here: {error}. Run it in a terminal.") from error
    return done.stdout.decode(errors="replace").rstrip()


def _ask_to_hold(hook: "Hook", before: Any, hold_s: float) -> bool:
    """Whether the scheduler has answered."""
    hook.hold(min(int(hold_s * 1000), _HOLD_MS_MAX))
    if not before["connected"]:
        return False
    return _await(lambda: hook.describe()["hold_answers"] != before["hold_answers"])


def _end_hold(hook: "Hook", before: Any) -> str:
    """Also of one that has not begun, or that no scheduler knows of yet."""
    if before["connected"]:
        _ask_to_hold(hook, before, 0)
    else:
        hook.hold(0)
    _wished["hold_s"] = 0.0
    return "This kernel no longer keeps the GPU between cells."


def _hold_to_come_s(status: Any, kernel: Any) -> float:
    """For how long this kernel is to keep the GPU once it has it; 0 when not, or not known."""
    return float(own_of(status, kernel["tenant"]).get("hold_to_come_s") or 0.0)


def _tenant_holds(status: Any, kernel: Any) -> bool:
    """A child process may hold the turn while the kernel's own does not."""
    return own_of(status, kernel["tenant"]).get("state", "idle") not in ("idle", "waiting")


def _await(holds: Any) -> bool:
    until_s = time.monotonic() + ANSWER_S
    while not holds():
        if time.monotonic() >= until_s:
            return False
        time.sleep(_LOOK_AGAIN_S)
    return True
