"""`%gpushare`: this kernel and the queue; giving a turn away; keeping one by hand.

The bootstrap loads this file by its path when the magic is first used, in kernels of any
environment: so it stands alone, like the bootstrap, standard library only and for Python 3.6 and
later. It asks the hook in this process about this kernel, and the scheduler about everybody.
"""

import ctypes
import html
import http.client
import json
import os
import re
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

USAGE = """usage:
  %gpushare             show this kernel and the queue
  %gpushare release     give the GPU to the next in the queue now, and end a hold
  %gpushare hold 10m    keep the GPU between cells for 10 minutes (30s, 10m, 1h)
  %gpushare hold 0      end the hold
  %gpushare doctor      find out what is wrong with GPU sharing here, and what to do"""

_ANSWER_S = 2.0
_DOCTOR_S = 60.0
_LOOK_AGAIN_S = 0.005
_HOLD_MS_MAX = 2**32 - 1
_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)")
_BAR_LETTERS = 20
_NOTHING: Any = {"devices": [], "tenants": []}
_CREDENTIALS = struct.Struct("3i")
_NOT_SHARED = "This kernel does not share the GPU."
_SWITCHED_OFF = "GPU sharing is switched off here (GPUSHARE_DISABLE=1): %gpushare does nothing."
_SWITCHED_OFF_BY_ADMIN = (
    "Your administrator has switched GPU sharing off: %gpushare does nothing, and this notebook "
    "uses the GPU like any other program."
)
_HOW_TO_SHARE = "Restart it from a Jupyter server that has jupyter-gpushare."


_wished = {"hold": False}
"""Whether the hook was asked for a hold that it has not been able to tell the scheduler of."""


class UsageError(Exception):
    """The arguments make no sense; the message says which, in one line."""


class Unable(Exception):
    """It cannot be done here; the message says why, and what to do."""


def gpushare(line: str, *, notice: str = "") -> Any:
    """What the magic does. Answers with something to display, or prints a sentence.

    `notice` is why this kernel does not share the GPU, where it does not."""
    try:
        return _perform(line.split(), notice)
    except UsageError as error:
        print(f"%gpushare: {error}\n{USAGE}")
    except Unable as error:
        print(error)
    return None


def _perform(words: "list[str]", notice: str) -> Any:
    verb = words[0] if words else "show"
    wanted = {"show": 0, "release": 0, "hold": 1, "doctor": 0}.get(verb)
    if wanted is None or (words and verb == "show"):
        raise UsageError(f"there is no sub-command {words[0]!r}.")
    if len(words) - 1 > wanted:
        raise UsageError(f"{words[wanted + 1]!r} is one word too many.")
    if verb == "hold":
        if len(words) == 1:
            raise UsageError("hold needs a time.")
        hold_s = seconds_of(words[1])
        print(hold(_hook(notice), hold_s))
    elif verb == "release":
        print(release(_hook(notice)))
    elif verb == "doctor":
        print(doctor())
    else:
        return show(notice)
    return None


# ---- what can be asked for -------------------------------------------------------------------


def show(notice: str) -> "View":
    """This kernel and the queue, as far as they can be learned."""
    try:
        kernel = _hook(notice).describe()
        story = story_of(kernel)
    except Unable as problem:
        kernel, story = {}, str(problem)
    status, tenant = scheduler_status(), str(kernel.get("tenant", ""))
    placement = os.environ.get("GPUSHARE_PLACEMENT", "")
    notes = [placement] if placement else []
    return View(" ".join([story, *notes, *notes_on_waiting(status, tenant)]), status, tenant)


def release(hook: "Hook") -> str:
    """Ask for the turn to be taken from this kernel, all its processes included."""
    before = hook.describe()
    status = scheduler_status()
    if before["connected"]:  # the wish has been told, and the scheduler tells what became of it
        _wished["hold"] = False
    if _wished["hold"] or _hold_to_come_s(status, before):
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
        _wished["hold"] = True
        later = f"This kernel will keep the GPU for {length(hold_s)} once it has it."
        if not before["running"] or not before["contexts_open"]:
            return f"This kernel has not used the GPU yet. {later}"
        if not before["connected"]:
            return "No scheduler is connected. This kernel makes the request when it finds one."
        return "The scheduler does not answer. `%gpushare doctor` tells more."
    now = hook.describe()
    left_s = now["hold_left_ms"] / 1000
    if left_s <= 0:
        refused = _own(scheduler_status(), now["tenant"]).get("hold_note")
        if refused:
            return str(refused)
        return (
            "This scheduler does not let a notebook keep the GPU between cells. Ask its "
            "administrator for a longer `hold_max_s`."
        )
    cut = " That is as long as this scheduler allows." if left_s < hold_s - 1 else ""
    to_come_s = _hold_to_come_s(scheduler_status(), now)
    if to_come_s:
        return f"This kernel will keep the GPU for {length(to_come_s)} once it has it.{cut}"
    return f"This kernel keeps the GPU until {clock(left_s)}, between cells too.{cut}"


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
            text=True,
            timeout=_DOCTOR_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unable(f"The doctor cannot run here: {error}. Run it in a terminal.") from error
    return done.stdout.rstrip()


def _ask_to_hold(hook: "Hook", before: Any, hold_s: float) -> bool:
    """Whether the scheduler has answered."""
    hook.hold(min(int(hold_s * 1000), _HOLD_MS_MAX))
    return _await(lambda: hook.describe()["hold_answers"] != before["hold_answers"])


def _end_hold(hook: "Hook", before: Any) -> str:
    """Also of one that has not begun, or that no scheduler knows of yet."""
    if before["connected"]:
        _ask_to_hold(hook, before, 0)
    else:
        hook.hold(0)
    _wished["hold"] = False
    return "This kernel no longer keeps the GPU between cells."


def _hold_to_come_s(status: Any, kernel: Any) -> float:
    """For how long this kernel is to keep the GPU once it has it; 0 when not, or not known."""
    return float(_own(status, kernel["tenant"]).get("hold_to_come_s") or 0.0)


def _tenant_holds(status: Any, kernel: Any) -> bool:
    """A child process may hold the turn while the kernel's own does not."""
    return _own(status, kernel["tenant"]).get("state", "idle") not in ("idle", "waiting")


def _await(holds: Any) -> bool:
    until_s = time.monotonic() + _ANSWER_S
    while not holds():
        if time.monotonic() >= until_s:
            return False
        time.sleep(_LOOK_AGAIN_S)
    return True


# ---- the hook --------------------------------------------------------------------------------


class Hook:
    """The hook's functions in this process. None of them blocks."""

    def __init__(self) -> None:
        library = ctypes.PyDLL(None)
        self._describe = library.gpushare_describe
        self._describe.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self._hold = library.gpushare_hold
        self._hold.argtypes, self._hold.restype = [ctypes.c_uint32], None
        self._release = library.gpushare_release
        self._release.argtypes, self._release.restype = [], None

    def describe(self) -> Any:
        """What the hook knows of this process."""
        needed = size = 4096
        while needed >= size:
            size = needed + 1024
            room = ctypes.create_string_buffer(size)
            needed = self._describe(room, size)
        return json.loads(room.value.decode(errors="replace"))

    def hold(self, hold_ms: int) -> None:
        self._hold(hold_ms)

    def release(self) -> None:
        self._release()


def _hook(notice: str) -> Hook:
    if notice:
        raise Unable(notice)
    if os.environ.get("GPUSHARE_DISABLE") == "1":
        by_admin = os.environ.get("GPUSHARE_DISABLED_BY") == "administrator"
        raise Unable(_SWITCHED_OFF_BY_ADMIN if by_admin else _SWITCHED_OFF)
    if not os.environ.get("GPUSHARE_TOKEN"):
        raise Unable(f"{_NOT_SHARED} {_HOW_TO_SHARE}")
    try:
        return Hook()
    except AttributeError:
        raise Unable(f"{_NOT_SHARED} {_HOW_TO_SHARE}") from None


def story_of(kernel: Any) -> str:
    """How this kernel stands, in a sentence or two. Pure."""
    if kernel["contexts_failed"]:
        return (
            "This kernel met an error from which CUDA cannot recover. Restart it to use the GPU "
            "again."
        )
    if not kernel["running"] or not kernel["tenant"]:
        return str(kernel["problem"] or "This kernel has not used the GPU yet.")
    if not kernel["connected"]:
        return f"This kernel has lost the scheduler and looks for it. {kernel['problem']}"
    if kernel["phase"] == "held":
        return "This kernel has the GPU."
    if kernel["phase"] == "closing":
        return "This kernel gives the GPU back."
    if kernel["phase"] == "asked":
        holder = kernel["holder"]
        ahead = f", after {holder}" if holder else ""
        place = kernel["queue_position"]
        return f"This kernel is number {place} in the queue for the GPU{ahead}."
    return "This kernel does not use the GPU now."


def notes_on_waiting(status: Any, tenant: str) -> "list[str]":
    """What a kernel that waits should know besides its place, and one for whose memory others wait,
    a sentence each. Pure, but for the clock. An older scheduler tells nothing of all this."""
    held = [
        "{} has reserved it until {}.".format(
            _who(holder, _tenants(status)), clock(holder["hold_left_s"])
        )
        for device in (status or _NOTHING)["devices"]
        if any(waiter["tenant"] == tenant for waiter in device["queue"])
        for holder in device["holders"]
        if holder.get("hold_left_s")
    ]
    own = _own(status, tenant)
    if own.get("estimate"):
        held += [str(own["estimate"][word]) for word in ("when", "why")]
    if own.get("hold_to_come_s"):
        held.append(
            "It will keep the GPU for {} once it has it; `%gpushare release` cancels that.".format(
                length(own["hold_to_come_s"])
            )
        )
    told = (own.get(word) for word in ("blocked_reason", "in_the_way", "class_note", "hold_note"))
    return [*held, *(str(sentences) for sentences in told if sentences)]


def notes_on_memory(status: Any, tenant: str) -> "list[str]":
    """What this kernel has on each device and parked, and how much it may have. Pure."""
    names = {device["id"]: device["name"] for device in (status or _NOTHING)["devices"]}
    lines = []
    for memory in _own(status, tenant).get("memory") or []:
        parts = [
            "{} on {}".format(size(memory["bytes_resident"]), names.get(memory["device"], "?"))
        ]
        for word in ("parked", "fixed"):
            if memory["bytes_" + word]:
                parts.append("{} {}".format(word, size(memory["bytes_" + word])))
        if memory["cap_bytes"]:
            parts.append("limit {}".format(size(memory["cap_bytes"])))
        if memory["bytes_resident"] or memory["bytes_parked"]:
            lines.append("Memory of this kernel: {}.".format(", ".join(parts)))
    return lines


def _tenants(status: Any) -> Any:
    return (status or _NOTHING)["tenants"]


def _own(status: Any, tenant: str) -> Any:
    """What the scheduler tells of this kernel's tenant; empty when nothing."""
    return next((each for each in _tenants(status) if each["id"] == tenant), {})


# ---- the scheduler ---------------------------------------------------------------------------


class _UnixConnection(http.client.HTTPConnection):
    """HTTP to the scheduler beside the hook's socket, if it runs as whom it should."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_ANSWER_S)
        self.sock.connect(str(self._path))
        raw = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        uid = _CREDENTIALS.unpack(raw)[1]
        service = os.environ.get("GPUSHARE_SCHEDULER_UID", "")
        if uid not in (0, os.getuid()) and str(uid) != service:
            raise ConnectionError(f"the socket {self._path} is served by uid {uid}")


def scheduler_status() -> Any:
    """Devices, holders and queues as this user may see them; None when nobody answers."""
    hook_socket = os.environ.get("GPUSHARE_SOCKET")
    if not hook_socket:
        return None
    # Under a hub it is the token, and not the account, that says whose eyes these are.
    token = os.environ.get("JUPYTERHUB_API_TOKEN")
    headers = {"Authorization": "token " + token} if token else {}
    connection = _UnixConnection(Path(hook_socket).with_name("http.sock"))
    try:
        connection.request("GET", "/api/v1/status", headers=headers)
        answer = connection.getresponse()
        status = json.loads(answer.read().decode())
        return status if answer.status == 200 else None
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()


# ---- how it looks ----------------------------------------------------------------------------

HEAD = ("", "who", "for", "")


class View:
    """What a notebook shows: text, and a small table where there is HTML."""

    def __init__(self, story: str, status: Any, tenant: str) -> None:
        self._lines = [story, *notes_on_memory(status, tenant)]
        self._devices = [] if status is None else status["devices"]
        self._tenants = [] if status is None else status["tenants"]
        self._tenant = tenant
        self._silent = status is None

    def __repr__(self) -> str:
        lines = list(self._lines)
        for device in self._devices:
            lines += ["", device["name"], "  " + memory_bar(device, self._tenants)]
            rows = rows_of(device, self._tenant, self._tenants)
            widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
            for row in rows:
                cells = (cell.ljust(width) for cell, width in zip(row, widths))  # noqa: B905
                lines.append(("  " + "  ".join(cells)).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [f"<p>{html.escape(line)}</p>" for line in self._lines]
        for device in self._devices:
            rows = "".join(_html_row(row) for row in rows_of(device, self._tenant, self._tenants))
            name = html.escape(device["name"])
            bar = html.escape(memory_bar(device, self._tenants))
            # Jupyter's own style centres captions and tables, and puts cells to the right.
            parts.append(f"<p><b>{name}</b><br>{bar}</p>")
            parts.append(f'<table style="margin-left: 0">{rows}</table>')
        return "".join(parts)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        bundle = {"text/plain": repr(self)}
        if not self._silent:
            bundle["text/html"] = self._repr_html_()
        return bundle


def rows_of(device: Any, tenant: str, tenants: Any) -> "list[tuple[str, str, str, str]]":
    """Holders, then who waits, in order: what, who, for how long, and what else. Pure."""
    rows = []
    for holder in device["holders"]:
        hold_left_s = holder.get("hold_left_s")  # an older scheduler does not tell
        held = "reserved until " + clock(hold_left_s) if hold_left_s else ""
        note = held or ("asked to give it back" if holder["recalled"] else "")
        rows.append(("has it", _who(holder, tenants, tenant), duration(holder["held_for_s"]), note))
    for place, waiter in enumerate(device["queue"], start=1):
        rows.append((str(place), _who(waiter, tenants, tenant), duration(waiter["waited_s"]), ""))
    return rows or [("lost" if device["lost"] else "free", "", "", "")]


def memory_bar(device: Any, tenants: Any) -> str:
    """How full the device is, by everybody, as a bar and in figures. Pure.

    NVML is asked now and then; tenants tell of what they take at once."""
    total = device["bytes_total"]
    resident = sum(
        memory["bytes_resident"]
        for tenant in tenants
        for memory in tenant.get("memory") or []
        if memory["device"] == device["id"]
    )
    known = resident + device.get("bytes_foreign", 0)
    used = min(max(device["bytes_used"], known, 0), total)
    full = min(_BAR_LETTERS, round(_BAR_LETTERS * used / total)) if total > 0 else 0
    bar = "█" * full + "░" * (_BAR_LETTERS - full)
    return f"{bar} {size(used)} of {size(total)} in use"


def _who(place: Any, tenants: Any, tenant: str = "") -> str:
    """`ann: train.ipynb` where notebooks of several users are named."""
    owners = {each["id"]: each["owner"] for each in tenants}
    owner, name = owners.get(place["tenant"], place["name"]), place["name"]
    several = len(set(owners.values()) - {"another user"}) > 1
    shown = f"{owner}: {name}" if several and owner != name else name
    return f"{shown} (this kernel)" if place["tenant"] == tenant else str(shown)


def _html_row(row: "tuple[str, ...]") -> str:
    cells = "".join(f'<td style="text-align: left">{html.escape(cell)}</td>' for cell in row)
    return f"<tr>{cells}</tr>"


def clock(left_s: float) -> str:
    """The time of day in so many seconds."""
    return time.strftime("%H:%M:%S", time.localtime(time.time() + left_s))


def size(count: int) -> str:
    """Bytes in MiB or GiB."""
    if count < 1 << 30:
        return f"{count / (1 << 20):.0f} MiB"
    return f"{count / (1 << 30):.1f} GiB"


def duration(seconds: float) -> str:
    """Short, with the unit that suits the size."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def length(seconds: float) -> str:
    """A time that somebody asked for, as exactly as they did."""
    whole = round(seconds)
    for unit, unit_s in (("h", 3600), ("min", 60)):
        if whole and whole % unit_s == 0:
            return f"{whole // unit_s} {unit}"
    return f"{whole} s"


def seconds_of(text: str) -> float:
    """`30s`, `10m`, `1h`, or `0`."""
    if text == "0":
        return 0.0
    found = _DURATION.fullmatch(text.lower())
    if found is None:
        raise UsageError(f"{text!r} is not a time.")
    return float(found.group(1)) * _UNITS_S[found.group(2)]
