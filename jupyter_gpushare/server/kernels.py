"""The kernels of this server, as its managers know them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jupyter_gpushare.kernel.provisioner import GPUShareMixin

from .gateway import why_elsewhere
from .state import ServerKernel
from .trimming import Trimming

_ANOTHER_PROVISIONER = (
    "This kernel is started by {}, which does not share the GPU. Ask your administrator to put "
    "GPUShareMixin before it."
)
_NO_TENANT = "No scheduler answered when this kernel started. Restart the kernel to share the GPU."
_ANOTHER_LANGUAGE = (
    "This kernel runs {}, and only PyTorch and CuPy in Python give unused GPU memory back. Free "
    "what your program does not need, or restart the kernel."
)
_ANOTHER_START = (
    "This kernel cannot be asked, for its kernelspec does not start ipykernel itself. Call "
    "`torch.cuda.empty_cache()` in a cell."
)


class ServerKernels:
    """Questions, and the words about an interrupt and a trim. Both managers are the Jupyter
    server's."""

    def __init__(self, kernel_manager: Any, session_manager: Any) -> None:
        self._kernel_manager = kernel_manager
        self._session_manager = session_manager

        self.cells_of: Callable[[str], tuple[str, ...]] = lambda kernel_id: ()
        """The messages that a kernel is executing, as the activity tells, which is made later."""
        self.changed: Callable[[], None] = lambda: None
        """Something else is told of a trim."""
        self.trimming = Trimming(kernel_manager, lambda: self.changed())

    def __contains__(self, kernel_id: str) -> bool:
        return kernel_id in self._kernel_manager

    def provisioner(self, kernel_id: str) -> object:
        """None while the kernel is about to start, or where it is a remote one."""
        if kernel_id not in self._kernel_manager:
            return None
        manager = self._kernel_manager.get_kernel(kernel_id)
        return getattr(manager, "provisioner", None)

    def tenant_id(self, kernel_id: str) -> str | None:
        provisioner = self.provisioner(kernel_id)
        return provisioner.tenant_id if isinstance(provisioner, GPUShareMixin) else None

    async def tell_interrupt(self, kernel_id: str) -> None:
        """After an interrupt by message: of one by signal the provisioner itself has told."""
        provisioner = self.provisioner(kernel_id)
        if not isinstance(provisioner, GPUShareMixin):
            return
        if getattr(provisioner.kernel_spec, "interrupt_mode", "signal") == "message":
            await provisioner.tell_interrupt()

    def why_it_keeps_caches(self, kernel_id: str) -> str:
        """Of a tenant: why it cannot be asked for what its frameworks keep unused, and what to do;
        empty where it can."""
        provisioner = self.provisioner(kernel_id)
        if getattr(provisioner, "tells_cells", False):
            return ""
        language = str(getattr(getattr(provisioner, "kernel_spec", None), "language", "") or "")
        if language.lower() in ("", "python"):
            return _ANOTHER_START
        return _ANOTHER_LANGUAGE.format(language)

    def trim_is_asked(self, tenant_id: str) -> bool:
        """Whether the kernel with this tenant has not answered yet."""
        return any(
            self.tenant_id(each) == tenant_id and self.trimming.is_open(each)
            for each in self._kernel_manager.list_kernel_ids()
        )

    async def listed(self) -> list[ServerKernel]:
        """All of them, by the notebook that they belong to."""
        sessions = {
            session["kernel"]["id"]: session
            for session in await self._session_manager.list_sessions()
            if session.get("kernel")
        }
        return [
            self._listed(kernel_id, sessions.get(kernel_id, {}))
            for kernel_id in self._kernel_manager.list_kernel_ids()
        ]

    def _listed(self, kernel_id: str, session: dict[str, Any]) -> ServerKernel:
        manager = self._kernel_manager.get_kernel(kernel_id)
        path = str(session.get("path") or "")
        running = self.cells_of(kernel_id)
        own_name = f"{getattr(manager, 'kernel_name', 'kernel')} {kernel_id[:8]}"
        return ServerKernel(
            kernel_id=kernel_id,
            name=str(session.get("name") or path.rpartition("/")[2] or own_name),
            path=path,
            tenant_id=self.tenant_id(kernel_id),
            why_unshared=self.why_unshared(kernel_id),
            cells=self.trimming.cells(kernel_id, running),
            trim=self.trimming.told(kernel_id, running),
        )

    def why_unshared(self, kernel_id: str) -> str:
        """For a kernel without a tenant: why, and what to do."""
        if elsewhere := why_elsewhere(self._kernel_manager.get_kernel(kernel_id)):
            return elsewhere
        provisioner = self.provisioner(kernel_id)
        if isinstance(provisioner, GPUShareMixin) and provisioner.why_switched_off:
            return f"{provisioner.why_switched_off} This kernel uses it like any other program."
        if provisioner is None or isinstance(provisioner, GPUShareMixin):
            return _NO_TENANT
        return _ANOTHER_PROVISIONER.format(type(provisioner).__name__)
