"""The settings of a running scheduler, with the places that they come from."""

from __future__ import annotations

import logging
from collections.abc import Callable

from jupyter_gpushare.core.configuration.checks import (
    NOTEBOOKS_REMEDY,
    notebooks_told,
    notebooks_with_shares,
    why_it_cannot_kill,
)
from jupyter_gpushare.core.configuration.layers import Layers, Values
from jupyter_gpushare.core.configuration.values import settings_as_json
from jupyter_gpushare.core.events import RequestEvent, SettingsChanged
from jupyter_gpushare.core.settings import SchedulerSettings, SettingsError

from ..base.sizes import check_sizes

log = logging.getLogger(__name__)


class LiveSettings:
    """Each change is all or nothing, and raises SettingsError where it cannot be. The core has
    heard of a change when the method returns."""

    def __init__(
        self,
        layers: Layers,
        request: Callable[[RequestEvent], None] = lambda event: None,
        *,
        hidden_tenants: bool = False,
    ) -> None:
        """`request` is the driver's; until there is one, nobody has to be told.
        `hidden_tenants`: their processes are out of this scheduler's sight."""
        self._hidden_tenants = hidden_tenants
        self.unseen: Callable[[], int] = lambda: 0
        """How many of the connected processes are."""
        self.layers = layers
        self.now: SchedulerSettings = self._kept(layers.settings(), None)
        """The settings in force."""
        self.request = request

    def set_live(self, changes: Values, cause: str) -> SchedulerSettings:
        return self._change(self.layers.with_live(changes), cause)

    def unset(self, name: str, cause: str) -> SchedulerSettings:
        return self._change(self.layers.without_live(name), cause)

    def take_file(self, values: Values) -> None:
        """The settings file has these values now. What was set live stays."""
        self._change(self.layers.with_file(values), "the settings file")

    def _change(self, layers: Layers, cause: str) -> SchedulerSettings:
        settings = self._kept(layers.settings(), self.now)
        self.request(SettingsChanged(settings=settings, cause=cause))
        self.layers, self.now = layers, settings
        self.warn()
        return settings

    def warn(self) -> None:
        """Say what of the settings counts for nothing."""
        if told := notebooks_told(notebooks_with_shares(settings_as_json(self.now))):
            log.warning("%s %s", told, NOTEBOOKS_REMEDY)

    def _kept(
        self, settings: SchedulerSettings, before: SchedulerSettings | None
    ) -> SchedulerSettings:
        """Raises SettingsError for what could not be kept here."""
        check_sizes(settings)
        why = why_it_cannot_kill(
            settings, before, hidden_tenants=self._hidden_tenants, unseen=self.unseen()
        )
        if why:
            raise SettingsError(why)
        return settings
