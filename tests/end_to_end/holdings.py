"""What tenants of random hand-overs have: of which kind each piece of memory is, what of it stays
on the device, and which pieces are the same memory in two processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.support.memory_tenants import MemoryTenant
from tests.support.sim import MIB

Place = tuple[str, int]
"""A tenant's name, and its slot."""
KINDS = {
    "alloc": 5,
    "pitch": 3,
    "map": 6,
    "pool": 3,
    "own_pool": 3,
    "managed": 4,
    "array": 2,
    "graph": 1,
}
"""Commands of memory_tenant.c that allocate, and how often each is taken: plain memory, rows,
memory that the program makes and maps itself, such that is allocated in a stream (from the
device's pool, and from one of the program's), managed memory, arrays, and what a graph allocates
that lives on."""
STAYS = ("array", "graph")
"""The driver alone has these, so they are fixed."""
GRAPH_UNIT = 32 * MIB
"""What the driver takes for the memory of graphs."""
SHARED_BLOCK_MAX = 1 * MIB
"""Allocations of no more than this have neighbours: who frees one gives its place to the next."""


def fixed_bytes_of(kind: str, size: int) -> int:
    return -(-size // GRAPH_UNIT) * GRAPH_UNIT if kind == "graph" else size


@dataclass
class Holdings:
    """Of all tenants that live, and of what the dead have left to others."""

    fixed_bytes_max: int
    kinds: dict[Place, str] = field(default_factory=dict)
    fixed: dict[Place, int] = field(default_factory=dict)
    owners: dict[Place, Place] = field(default_factory=dict)
    """By the place where another process's memory is, that where it is its owner's."""

    def add(self, place: Place, kind: str, size: int) -> None:
        self.kinds[place] = kind
        if kind in STAYS:
            self.fixed[place] = fixed_bytes_of(kind, size)

    def attach(self, place: Place, owner: Place, size: int) -> None:
        """It is fixed as long as the other process has it."""
        self.kinds[place] = "attached"
        self.fixed[place] = size
        self.owners[place] = owner

    def has_space_for(self, size: int) -> bool:
        """Whether so much more may be fixed."""
        return sum(self.fixed.values()) + size <= self.fixed_bytes_max

    def of_kind(self, tenant: MemoryTenant, *kinds: str) -> list[int]:
        return [slot for slot in sorted(tenant.held) if self.kinds[tenant.name, slot] in kinds]

    def others_with(self, place: Place) -> Iterator[Place]:
        """Where the same memory is besides, of processes that live."""
        owner = self.owners.get(place, place)
        same = [owner, *(each for each, its in self.owners.items() if its == owner)]
        return (each for each in same if each != place and each in self.kinds)

    def remove(self, place: Place) -> None:
        """It was freed; those who have it from there keep it, and each other's words."""
        self.kinds.pop(place)
        self.fixed.pop(place, None)
        self.owners.pop(place, None)
        left = [each for each, owner in self.owners.items() if owner == place]
        for other in left:
            self.owners[other] = left[0]
        if left:
            del self.owners[left[0]]

    def remove_all_of(self, tenant: MemoryTenant) -> None:
        for place in [each for each in self.kinds if each[0] == tenant.name]:
            self.remove(place)
