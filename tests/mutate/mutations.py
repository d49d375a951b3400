"""One mutation for each rule by which it is decided who goes next.

`tests/core/test_mutations.py` holds that each text is still there, and there once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """A rule, the text that keeps it, and one that does not."""

    rule: str
    file: str
    """In `jupyter_gpushare/core`."""
    text: str
    broken: str
    tests: str
    """Where a test must fail: files in `tests/core`, by their names without `test_`."""


MUTATIONS = [
    # ---- fair sharing by owner -------------------------------------------------------------------
    Mutation(
        "An owner is charged by its weight",
        "accounts",
        "here.accounts[use.owner].virtual_s += each_s / weight",
        "here.accounts[use.owner].virtual_s += each_s",
        "fair_share",
    ),
    Mutation(
        "Of several groups the largest weight counts",
        "shares/entries",
        "return max((each for each in of_groups if each is not None), default=None)",
        "return min((each for each in of_groups if each is not None), default=None)",
        "fair_share",
    ),
    Mutation(
        "A user's own weight goes before those of groups",
        "shares/entries",
        "if owner in values and not owner.startswith(GROUP_SIGN):",
        "if False:",
        "fair_share",
    ),
    Mutation(
        "Idle time is not saved up",
        "accounts",
        "return account.ahead_s if now_s - account.left_s < ABSENCE_S else 0.0",
        "return account.ahead_s",
        "fair_share",
    ),
    Mutation(
        "A debt outlives the owner's last tenant",
        "accounts",
        "return max(0.0, account.ahead_s - (self.clock_s - account.left_at_s))",
        "return 0.0",
        "order",
    ),
    Mutation(
        "A debt is not forgiven because nobody else is there",
        "accounts",
        "owed_s = max(0.0, brings_s)",
        "owed_s = 0.0",
        "fair_share",
    ),
    Mutation(
        "What is lost to a turn that did not end in time is owed",
        "accounts",
        "account.owed_s = -late_s",
        "pass",
        "fair_share",
    ),
    Mutation(
        "Who leaves by itself keeps one longest quantum of what it is behind",
        "accounts",
        "account.ahead_s = -most_s / weight - most_s / self.weights_present",
        "account.ahead_s = account.virtual_s - self.virtual_s",
        "fair_share",
    ),
    Mutation(
        "Nothing is due to who is passed over",
        "lines",
        "self._move(tenant, Places(uses, holds, lacks, queues, _NONE if passed_over else queues))",
        "self._move(tenant, Places(uses, holds, lacks, queues, queues))",
        "fair_share",
    ),
    Mutation(
        "Nobody is charged for a jump of the clock",
        "scheduler",
        "accounts.skip_time()",
        "pass",
        "clock",
    ),
    Mutation(
        "Turns that run at once are charged a part each",
        "accounts",
        "each_s = passed_s / len(uses)",
        "each_s = passed_s",
        "order",
    ),
    Mutation(
        "Who is alone on a device owes nothing for it",
        "accounts",
        "here.virtual_s += passed_s / here.weights_present",
        "pass",
        "fair_share",
    ),
    Mutation(
        "An owner's tenants take turns among themselves",
        "lines",
        "return (found, finish_s, tenant.place - tenant.lacks_its_own * _BEFORE_SIBLINGS)",
        "return (found, finish_s, -tenant.place)",
        "order",
    ),
    Mutation(
        "A turn goes on where its owner would be served next all the same",
        "policy",
        "if level not in BY_SHARE or finish_s <= own_s:",
        "if True:",
        "fair_share",
    ),
    # ---- new cells, and the credit that pays for them --------------------------------------------
    Mutation(
        "A new cell goes before those who wait longer",
        "lines",
        "found = FIRST if new_cell else ORDINARY",
        "found = ORDINARY",
        "credit",
    ),
    Mutation(
        "A turn ends at once for a new cell",
        "policy",
        "if pressed_s is not None and now_s >= pressed_s:",
        "if False:",
        "credit",
    ),
    Mutation(
        "A new cell does not end the turn of another new one",
        "policy",
        "if not ends(level, turn.level) or (held and level != URGENT):",
        "if held and level != URGENT:",
        "credit",
    ),
    Mutation(
        "Credit is spent",
        "accounts",
        "self.owners[use.owner].credit_s -= each_s",
        "pass",
        "credit",
    ),
    Mutation(
        "Credit has an end",
        "accounts",
        "known.credit_s = min(most_s, known.credit_s + share * passed_s)",
        "known.credit_s = known.credit_s + share * passed_s + most_s",
        "credit",
    ),
    Mutation(
        "With too little credit nobody goes first",
        "policy",
        "return left_s >= _CREDIT_LEAST_S",
        "return True",
        "order",
    ),
    Mutation(
        "A cell is new until it has used its shortest quantum",
        "policy",
        "return state.cell_used_s(tenant) < shortest_quantum_s(state.settings)",
        "return True",
        "credit",
    ),
    Mutation(
        "A turn that is kept by hand does not end for a new cell",
        "policy",
        "if not ends(level, turn.level) or (held and level != URGENT):",
        "if not ends(level, turn.level):",
        "credit hold",
    ),
    # ---- classes ---------------------------------------------------------------------------------
    Mutation(
        "`realtime` goes before new cells",
        "shares/classes",
        "if runs_as is TenantClass.REALTIME and within_share:",
        "if False:",
        "classes",
    ),
    Mutation(
        "`realtime` goes first within its share alone",
        "shares/classes",
        "if runs_as is TenantClass.REALTIME and within_share:",
        "if runs_as is TenantClass.REALTIME:",
        "classes",
    ),
    Mutation(
        "`batch` is after all others",
        "shares/classes",
        "return STARVED if starved and within_share else LAST",
        "return ORDINARY",
        "classes",
    ),
    Mutation(
        "`batch` waits no longer than starvation_s",
        "shares/classes",
        "return STARVED if starved and within_share else LAST",
        "return LAST",
        "classes",
    ),
    Mutation(
        "`batch` gives way at once",
        "shares/classes",
        "or (waits == ORDINARY and has == LAST)",
        "or False",
        "classes",
    ),
    Mutation(
        "Beyond its share, `interactive` does not go before `batch`",
        "shares/classes",
        "return LAST if beside_batch and not within_share else ORDINARY",
        "return ORDINARY",
        "classes",
    ),
    Mutation(
        "Nobody has a class that they may not use",
        "shares/classes",
        "if CLASSES[wanted.value] <= CLASSES[most.value]:",
        "if True:",
        "classes",
    ),
    Mutation(
        "Owners in debt keep nothing by hand",
        "holds",
        "return min(left_s) if min(left_s) >= _DEBT_LEAST_S else 0.0",
        "return 1.0",
        "classes",
    ),
    # ---- guarantees, limits and caps -------------------------------------------------------------
    Mutation(
        "Who has had less than its request goes first",
        "shares/guarantees",
        "return Standing.GUARANTEED, math.inf",
        "return Standing.FREE, math.inf",
        "guarantees",
    ),
    Mutation(
        "New cells go first as far as the requests of others leave time for them",
        "lines",
        "(lacks or accounts.of[device].not_promised_s > 0)",
        "True",
        "guarantees",
    ),
    Mutation(
        "New cells go first also where requests leave nothing, within a request",
        "lines",
        "(lacks or accounts.of[device].not_promised_s > 0)",
        "accounts.of[device].not_promised_s > 0",
        "guarantees",
    ),
    Mutation(
        "New cells within a request leave the rest to others",
        "accounts",
        "sum(each.on_credit and not each.lacks for each in uses)",
        "sum(each.on_credit for each in uses)",
        "guarantees",
    ),
    Mutation(
        "A new cell that finds no time left goes first when there is some again",
        "lines",
        "if self.rules.requests:",
        "if False:",
        "guarantees",
    ),
    Mutation(
        "Requests leave less time for new cells",
        "accounts",
        "(max(0.0, 1.0 - here.promised) - taken)",
        "(1.0 - taken)",
        "guarantees",
    ),
    Mutation(
        "Who has less than its request does not end turns of its likes",
        "lines",
        "return level if level in (STARVED, GUARANTEED) else LAST",
        "return level if level == STARVED else LAST",
        "guarantees",
    ),
    Mutation(
        "Whoever has had its hard limit waits",
        "shares/guarantees",
        "if part < 1 and used_s > most_s + _LEAST_S:",
        "if False:",
        "guarantees",
    ),
    Mutation(
        "A turn ends at its owner's hard limit",
        "policy",
        "return Recall(RecallReason.LIMIT)",
        "pass",
        "guarantees",
    ),
    Mutation(
        "A turn ends at its owner's elastic limit while others wait",
        "policy",
        "return min(quantum_s, elastic_left_s(state.lines, tenant))",
        "return quantum_s",
        "guarantees",
    ),
    Mutation(
        "What an owner does not want for a moment is not kept from it",
        "limits",
        "known = (here.usage.get(who, Usage()), wish.away)",
        "known = (here.usage.get(who, Usage()),)",
        "guarantees",
    ),
    Mutation(
        "The window slides",
        "shares/usage",
        "span.used_s if span.begin_s >= from_s else",
        "span.used_s if True else",
        "guarantees",
    ),
    Mutation(
        "A violated guarantee is counted",
        "limits",
        "here.violations[who] = here.violations.get(who, 0) + 1",
        "pass",
        "guarantees",
    ),
    Mutation(
        "A limit of a notebook counts",
        "shares/guarantees",
        "hard = min(owner.hard_limit, self.hard_limits.get(name, 1.0))",
        "hard = owner.hard_limit",
        "guarantees_of_notebooks",
    ),
    Mutation(
        "An entry counts for a notebook that nobody has seen yet, from when it is called so",
        "lines",
        """        self.judge_soon([tenant])

    def level_turn""",
        """
    def level_turn""",
        "guarantees_of_notebooks",
    ),
    Mutation(
        "A notebook that nobody has seen yet is known as its user is",
        "configuration/unseen",
        "return is_user(name) or (is_tenant(name) and",
        "return is_user(name) or (False and",
        "setting_layers",
    ),
    Mutation(
        "Of a user's notebooks, those that lack their own requests go first",
        "lines",
        "return (found, finish_s, tenant.place - tenant.lacks_its_own * _BEFORE_SIBLINGS)",
        "return (found, finish_s, tenant.place)",
        "guarantees_of_notebooks",
    ),
    Mutation(
        "A notebook that lacks its own request gives its turn to none of its user's others",
        "policy",
        "if tenant.lacks_its_own and not waiter.lacks_its_own:",
        "if False:",
        "guarantees_of_notebooks",
    ),
    Mutation(
        "What notebooks request takes no more from others than what their users do",
        "limits",
        "alone = rules is not None and rules.counts_by_itself(tenant.owner)",
        "alone = True",
        "guarantees_of_notebooks",
    ),
    Mutation(
        "New cells leave what notebooks request",
        "accounts",
        "return 0.0 if owner in self.requests else self.requests.get(name_of_tenant(*who), 0.0)",
        "return 0.0",
        "guarantees_of_notebooks",
    ),
    Mutation(
        "What notebooks request is promised once",
        "accounts",
        "return 0.0 if owner in self.requests else self.requests.get(name_of_tenant(*who), 0.0)",
        "return self.requests.get(name_of_tenant(*who), 0.0)",
        "guarantees_of_notebooks",
    ),
    Mutation(
        "Notebooks request no more together than their users",
        "shares/guarantees",
        "if of_notebooks[owner] > most[owner] * _SUM_MAX:",
        "if False:",
        "guarantees_of_notebooks",
    ),
    Mutation(
        "A notebook's own cap goes before its user's",
        "shares/caps",
        "return cap_of(caps, owner, groups) if own is None else own",
        "return cap_of(caps, owner, groups)",
        "caps",
    ),
    Mutation(
        "An entry that is taken back leaves what was there before",
        "configuration/layers",
        "if without.given(row)[0][1] == changed.live[row.name]:",
        "if False:",
        "setting_layers",
    ),
    Mutation(
        "Of several caps the tighter one counts",
        "changes",
        "limit = min(together, limit, key=_room)",
        "limit = together",
        "caps",
    ),
    # ---- quanta ----------------------------------------------------------------------------------
    Mutation(
        "The quantum is used up while others wait, and only then",
        "policy",
        "return turn.contended_since_s + turn.quantum_s - turn.contended_s",
        "return turn.contended_since_s + turn.quantum_s",
        "recall",
    ),
    Mutation(
        "Quanta grow with the cell",
        "policy",
        "wanted_s = max(state.cell_used_s(tenant), pays_s)",
        "wanted_s = pays_s",
        "quantum",
    ),
    Mutation(
        "A quantum pays for the memory that moves",
        "policy",
        "wanted_s = max(state.cell_used_s(tenant), pays_s)",
        "wanted_s = state.cell_used_s(tenant)",
        "quantum",
    ),
    Mutation(
        "No quantum is longer than the longest",
        "policy",
        "return min(max(wanted_s, settings.quantum_min_s), settings.quantum_max_s)",
        "return max(wanted_s, settings.quantum_min_s)",
        "quantum",
    ),
    Mutation(
        "The quantum waits while memory comes back",
        "policy",
        "return now_s < turn.memory_progress_s + state.settings.park_timeout_s",
        "return False",
        "memory_admission",
    ),
    # ---- what memory that moves may cost ---------------------------------------------------------
    Mutation(
        "A new cell waits until the swap budget covers its way in and out",
        "policy",
        "return min(latest_s, swap.covers_at_s(both_ways_s, state.settings.swap_percent / 100))",
        "return swap.at_s",
        "quantum",
    ),
    Mutation(
        "It waits no longer than swap_wait_max_s",
        "policy",
        "return min(latest_s, swap.covers_at_s(both_ways_s, state.settings.swap_percent / 100))",
        "return swap.covers_at_s(both_ways_s, state.settings.swap_percent / 100)",
        "quantum",
    ),
    Mutation(
        "The swap budget fills at its share of time",
        "swap_budget",
        "return max(0.0, self.spent_s - share * (now_s - self.at_s))",
        "return self.spent_s",
        "order",
    ),
    Mutation(
        "What moves is spent from the swap budget",
        "swap_budget",
        "self.spent_s = self._missing_s(now_s, share) + bytes_moved / self.bytes_per_s",
        "self.spent_s = self._missing_s(now_s, share)",
        "quantum",
    ),
    # ---- several devices, and what admins say ----------------------------------------------------
    Mutation(
        "A device is kept for a gang whose turn it is",
        "gangs",
        "self.free.remove(device)  # kept for it",
        "self.at[device] = self.at.get(device, 0) + 1",
        "gangs",
    ),
    Mutation(
        "A gang overtakes nobody on any of its lines",
        "gangs",
        "if any(self._next(each) is not tenant for each in missing):",
        "if False:",
        "gangs",
    ),
    Mutation(
        "No device is kept for a gang whose turn it is not",
        "gangs",
        "return not self._is_patient(tenant) or self._is_first_everywhere(tenant, missing)",
        "return True",
        "gangs",
    ),
    Mutation(
        "Who needs a paused device holds nobody up",
        "policy",
        """            if is_kept_waiting(state, tenant):
                continue
""",
        "",
        "paused",
    ),
    Mutation(
        "A turn on a device that is paused ends",
        "policy",
        "return Recall(RecallReason.PAUSED, paused.name)",
        "pass",
        "paused",
    ),
    Mutation(
        "Who is boosted goes before everybody",
        "lines",
        "return (BOOSTED, 0.0, tenant.place)",
        "pass",
        "order",
    ),
    Mutation(
        "A hold lasts no longer than hold_max_s",
        "holds",
        "until_s = min(now_s + hold_s, began_s + state.settings.hold_max_s)",
        "until_s = now_s + hold_s",
        "hold",
    ),
    # ---- waits for memory ------------------------------------------------------------------------
    Mutation(
        "Who waits for memory of others gives its turn back",
        "policy",
        "if turn.gives_way and is_waiting(tenant):",
        "if False:",
        "memory_waits",
    ),
    Mutation(
        "A turn that ends for the tenant's own sake may be kept while nobody waits",
        "policy",
        """    if turn.gives_way:
        ends_s""",
        """    if False:
        ends_s""",
        "memory_waits_end",
    ),
    Mutation(
        "All calls of a notebook together wait once",
        "needs",
        "tenant.waits_in_vain[device_id, each.number] = mark",
        "pass",
        "memory_waits",
    ),
    Mutation(
        "A further call of a notebook does not begin to wait anew",
        "needs",
        "if wait is None or not any(_calls_that_wait(tenant)):",
        "if True:",
        "memory_waits_end",
    ),
    Mutation(
        "A notebook waits anew when others have released something",
        "needs",
        "if found and self._room_for(share) >= marks[found[0]].room_bytes + least:",
        "if False:",
        "memory_waits",
    ),
    Mutation(
        "What there was at some time of the wait is no release",
        "needs",
        "wait.rooms[device_id] = max(room_bytes, wait.rooms.get(device_id, room_bytes))",
        "wait.rooms[device_id] = room_bytes",
        "memory_waits_end",
    ),
    Mutation(
        "What others released is noticed when nobody asks",
        "needs",
        """        share.need_short_since_s = None
        self._waited_in_vain(share)
""",
        """        share.need_short_since_s = None
""",
        "memory_waits_end",
    ),
    Mutation(
        "A wait gives one turn back",
        "needs",
        "if tenant.turn is not None and not wait.has_given_way:",
        "if tenant.turn is not None:",
        "memory_waits",
    ),
    Mutation(
        "Nobody waits in a circle",
        "needs",
        "return sum(self._of[device][each] for each in stuck)",
        "return 0",
        "memory_waits",
    ),
    Mutation(
        "Who waits for somebody whose wait can end may wait",
        "needs",
        """            if not free:
                return False
""",
        """            return False
""",
        "memory_waits",
    ),
    Mutation(
        "Of those who wait the largest call counts",
        "needs",
        "short[device] = max(short.get(device, 0), call.bytes_short)",
        "short[device] = call.bytes_short",
        "memory_waits_end",
    ),
    Mutation(
        "No call joins a wait that nobody could meet",
        "needs",
        "if short_bytes > self._freed.by_others(device_id, tenant.id):",
        "if False:",
        "memory_waits_end",
    ),
    Mutation(
        "Nobody waits for what the host has no space for",
        "needs",
        "freed[share.tenant] += min(share.bytes_staying, most)",
        "freed[share.tenant] += share.bytes_staying",
        "memory_waits",
    ),
    Mutation(
        "Work that waits for the call ends its wait",
        "turns",
        "stalls(self._state, tenant)",
        "pass",
        "memory_waits",
    ),
    Mutation(
        "What stalled in one cell is tried anew in the next",
        "node_events",
        "    cell_ends(tenant)\n",
        "",
        "memory_waits_end",
    ),
    Mutation(
        "A wait ends with its call",
        "needs",
        "if share is not None and (share.need_id, share.asked_bytes) == call[:2]:",
        "if share is not None:",
        "memory_waits",
    ),
    Mutation(
        "Nobody waits where turns are off",
        "needs",
        "if is_new or not (state.turns_are_on and wait_s) or self._waited_in_vain(share):",
        "if is_new or not wait_s or self._waited_in_vain(share):",
        "memory_waits",
    ),
    Mutation(
        "A standstill of ours is no wait",
        "scheduler",
        "stand_still(self._state, self._now_s - self._wake_at_s + JUMP_S)",
        "pass",
        "memory_waits_end",
    ),
]
