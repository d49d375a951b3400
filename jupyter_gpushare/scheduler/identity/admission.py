"""Decides which peers may come in over hook.sock. It does not touch the socket."""

from __future__ import annotations

import os

from jupyter_gpushare.client.connection import user_name
from jupyter_gpushare.protocol.messages import Hello, RefusalCode

from .peer import Peer
from .tenants import TenantBook
from .tokens import BadToken, TenantRecord, TokenSigner


class Refusal(Exception):
    """This peer is not let in, or not any longer; the message goes to its user."""

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Admission:
    """Checks a peer's uid, and its Hello's token against the tenants that there are."""

    def __init__(self, *, signer: TokenSigner, tenants: TenantBook, serves_all: bool) -> None:
        self._signer = signer
        self._tenants = tenants
        self._own_uid = os.getuid()
        self.serves_all = serves_all

    def serves(self, peer: Peer) -> bool:
        """Whether this scheduler is there for the peer's user at all."""
        return self.serves_all or peer.uid in (0, self._own_uid)

    def check(self, hello: Hello, peer: Peer) -> TenantRecord:
        """The tenant that the client belongs to; raises Refusal."""
        if not self.serves(peer):
            raise Refusal(
                RefusalCode.WRONG_USER,
                f"This scheduler serves {user_name(self._own_uid)} alone, not "
                f"{user_name(peer.uid)}. Start a scheduler of your own.",
            )
        try:
            record = self._signer.verify(hello.token)
        except BadToken as error:
            raise Refusal(
                RefusalCode.BAD_TOKEN,
                f"The scheduler has not given out this token ({error}). Restart the kernel, so "
                f"that it gets a fresh one.",
            ) from error
        if self._tenants.is_removed(record.tenant_id):
            raise Refusal(
                RefusalCode.BAD_TOKEN,
                f"The kernel {record.name!r} that this process belonged to has been shut down or "
                f"restarted. End this process, and start it again from a running kernel.",
            )
        if peer.uid != record.uid and not (peer.uid == 0 and peer.administers):
            raise Refusal(
                RefusalCode.WRONG_USER,
                f"The kernel {record.name!r} belongs to {user_name(record.uid)}, not to "
                f"{user_name(peer.uid)}. Run this program from a kernel of your own.",
            )
        return record
