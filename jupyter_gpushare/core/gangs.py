"""Who is served where some queue for several devices (gangs). Questions only.

- A tenant is served when each device that it lacks is free, and nobody before it on one of its
  lines can be served. So a gang gets all its devices or none, and takes none from those whose turn
  it is.
- A device is kept for a gang that waits for another one when it is the gang's turn on all of them,
  or when the gang has let many pass, and no gang has waited longer for one of them; else, and while
  the gang is passed over for somebody's memory, those behind it go on.
- Where gangs are behind each other, the one goes before whose owner is the least ahead.

So there is no circle of waits: the gang that has waited longest gets one device after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .ids import DeviceId, TenantId
from .records import Tenant
from .space.requests import Obstacle
from .state import State

PASSED_MAX = 4
"""So often each of the queue may come anew while a gang lets others pass."""


@dataclass(slots=True)
class GangLook:
    """One look at some free devices and the lines for them."""

    state: State
    lines: Mapping[DeviceId, Sequence[Tenant]]
    free: set[DeviceId]
    in_the_way: Callable[[Tenant], Obstacle | None]
    """What keeps the tenant's memory off its devices."""
    stays_in_the_way: Callable[[Tenant], Obstacle | None]
    """What would do so if all who have its devices gave them back."""
    served: dict[TenantId, Tenant] = field(default_factory=dict)
    obstacles: dict[TenantId, Obstacle] = field(default_factory=dict)
    at: dict[DeviceId, int] = field(default_factory=dict)
    """How many of each line the look has gone past."""

    def go_through(self) -> None:
        """Until each device is given to somebody, kept for somebody, or wanted by nobody."""
        while heads := self._heads():
            if any([self._settles(device, tenant) for _, device, tenant in heads]):
                continue
            # Each of these is behind another one somewhere.
            behind = max((tenant for _, _, tenant in heads), key=self._circle_key)
            for device in behind.places.queues & self.free:
                if self._next(device) is behind:
                    self.at[device] += 1

    def serve_if_free(self, tenant: Tenant) -> None:
        missing = self.state.missing_devices(tenant)
        if self._is_done_with(tenant) or not missing <= self.free:
            return
        in_the_way = self.in_the_way(tenant)
        if in_the_way is not None:
            self.obstacles[tenant.id] = in_the_way
        else:
            self.served[tenant.id] = tenant
            self.free -= missing

    def _is_done_with(self, tenant: Tenant) -> bool:
        known = tenant.id in self.served or tenant.id in self.obstacles
        return known or self.state.is_kept_waiting(tenant)

    def _heads(self) -> list[tuple[tuple[int, int], DeviceId, Tenant]]:
        """Who is next on each free line, the earliest first."""
        found = []
        for device in sorted(self.free):
            tenant = self._next(device)
            if tenant is not None:
                first = self.state.lines.of[device].rank_of[tenant.id][0]
                found.append(((first, tenant.place), device, tenant))
        return sorted(found, key=lambda each: each[:2])

    def _next(self, device: DeviceId) -> Tenant | None:
        line, at = self.lines[device], self.at.get(device, 0)
        while at < len(line) and self._is_done_with(line[at]):
            at += 1
        self.at[device] = at
        return line[at] if at < len(line) else None

    def _settles(self, device: DeviceId, tenant: Tenant) -> bool:
        """Whether something comes of it that the tenant is next there."""
        if device not in self.free or self._next(device) is not tenant:
            return False  # somebody was served meanwhile
        missing = self.state.missing_devices(tenant)
        if missing <= self.free:
            if any(self._next(each) is not tenant for each in missing):
                return False
            self.serve_if_free(tenant)
        elif self._is_kept_for(tenant, missing):
            was_passed_over = tenant.id in self.state.obstacles
            in_the_way = self.stays_in_the_way(tenant) if was_passed_over else None
            if in_the_way is not None:
                self.obstacles[tenant.id] = in_the_way
            else:
                self.free.remove(device)  # kept for it
        else:
            self.at[device] += 1
        return True

    def _is_kept_for(self, tenant: Tenant, missing: Iterable[DeviceId]) -> bool:
        """Whether no gang has waited longer for one of these, and it is this one's turn everywhere,
        or it has let many pass."""
        others = (each for device in missing for each in self._gangs(device))
        if any(each.place < tenant.place and each.id not in self.served for each in others):
            return False
        return not self._is_patient(tenant) or self._is_first_everywhere(tenant, missing)

    def _is_patient(self, tenant: Tenant) -> bool:
        came_since = self.state.arrivals - tenant.place
        return came_since <= PASSED_MAX * len(self.state.queue)

    def _is_first_everywhere(self, tenant: Tenant, missing: Iterable[DeviceId]) -> bool:
        for device in missing:
            for other in self.lines[device]:
                if other is tenant:
                    break
                if not self._is_passed_over(other):
                    return False
        return True

    def _gangs(self, device: DeviceId) -> Iterator[Tenant]:
        gangs = self.state.lines.of[device].gangs.values()
        return (each for each in gangs if not self._is_passed_over(each))

    def _is_passed_over(self, tenant: Tenant) -> bool:
        known = tenant.id in self.obstacles or tenant.id in self.state.obstacles
        return known or self.state.is_kept_waiting(tenant)

    def _circle_key(self, tenant: Tenant) -> tuple[int, bool, float, int]:
        """Who of several that are behind each other goes before others: the one whose owner is the
        least ahead where it is ahead most; but whoever has let many pass lets no more."""
        state, ranks, ahead_s = self.state, [], []
        for device in tenant.places.queues:
            first, finish_s, _, _ = state.lines.of[device].rank_of[tenant.id]
            ranks.append(first)
            ahead_s.append(finish_s - state.accounts.of[device].virtual_s)
        is_patient = self._is_patient(tenant)
        return min(ranks), is_patient, max(ahead_s) if is_patient else 0.0, tenant.place
