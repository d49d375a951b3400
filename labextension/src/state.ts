/**
 * What the server extension tells: the answer of `GET gpushare/api/state`, which is also the text
 * inside each event. It is parsed here, once, so that nothing else meets a value it does not know.
 */

/** The version of the state that this panel understands. */
export const STATE_VERSION = 1;

/** What the server calls a user whose name the reader may not know. */
export const UNNAMED = 'another user';

/** A tenant that holds a device's turn, or waits for it. */
export interface ITenant {
  readonly tenantId: string;
  /** Empty where the caller may not see it. */
  readonly name: string;
  readonly owner: string;
  /** Whether it is this user's, of whichever server. */
  readonly mine: boolean;
  /** Its class; empty where that is not told. */
  readonly runsAs: string;
}

export interface IHolder extends ITenant {
  readonly heldS: number;
  /** For how much longer its user keeps it by hand; 0 when it is not kept. */
  readonly holdLeftS: number;
  /** What is left of its turn; null while nobody waits. */
  readonly turnLeftS: number | null;
  /** One of its processes was stopped from outside. */
  readonly frozen: boolean;
}

export interface IWaiter extends ITenant {
  readonly position: number;
  readonly waitedS: number;
  /** When it starts or goes on; null where the reader is not told. */
  readonly wait: IWait | null;
  /** What is in its way besides the queue; empty where the reader is not told. */
  readonly why: string;
}

/** What a tenant has on a device. */
export interface ITenantMemory extends ITenant {
  readonly bytesResident: number;
}

/** What an administrator has done to a device: paused, no turn begins; drained, memory leaves too. */
export const DEVICE_MODES = ['open', 'paused', 'drained'] as const;
export type DeviceMode = (typeof DEVICE_MODES)[number];

export interface IDevice {
  readonly id: string;
  readonly name: string;
  readonly bytesTotal: number;
  readonly bytesUsed: number;
  /** Of all tenants together, and on the device. */
  readonly bytesTenants: number;
  /** Whose that is: mine first, then who has the most. Empty where an older server tells nothing. */
  readonly tenants: readonly ITenantMemory[];
  /** It is no hardware. */
  readonly simulated: boolean;
  /** Of programs that share nothing, and of CUDA's own contexts; null where it is not known. */
  readonly bytesForeign: number | null;
  /** Of these, what CUDA's contexts of kernels take; null where it is not known. */
  readonly bytesContexts: number | null;
  /** Kept free, for what no one can ask for in advance; null where it is not known. */
  readonly bytesReserved: number | null;
  /** The driver no longer answers for it. */
  readonly lost: boolean;
  readonly mode: DeviceMode;
  readonly holder: IHolder | null;
  readonly queue: readonly IWaiter[];
}

/** What a kernel has of one device. */
/** The kinds of memory that cannot be parked, as the scheduler names them. */
export const STAYING_KINDS = [
  'stopped',
  'driver_pools',
  'graphs',
  'managed',
  'arrays',
  'other'
] as const;
export type StayingKind = (typeof STAYING_KINDS)[number];
export const MOVING_KINDS = ['plain', 'mapped', 'pooled', 'prefetched'] as const;
export type MovingKind = (typeof MOVING_KINDS)[number];

export interface IMemory {
  readonly deviceId: string;
  /** On the device. */
  readonly bytesResident: number;
  /** In host memory, until the kernel's next turn. */
  readonly bytesParked: number;
  /** Of what is resident: it cannot be parked. */
  readonly bytesFixed: number;
  /** Bytes of what cannot be parked, by kind. */
  readonly staying: ReadonlyMap<StayingKind, number>;
  /** Bytes of what can be, but for what of it is used by others. */
  readonly moving: ReadonlyMap<MovingKind, number>;
  /** More than this the kernel does not get; 0 where it may have all. */
  readonly capBytes: number;
}

export const KERNEL_STATES = ['idle', 'waits', 'holds', 'unshared', 'failed'] as const;
export type KernelState = (typeof KERNEL_STATES)[number];

export interface IKernel {
  readonly kernelId: string;
  /** Empty while it does not share the GPU. */
  readonly tenantId: string;
  readonly name: string;
  /** Of its notebook, below the server's root; empty for a kernel without one. */
  readonly path: string;
  readonly state: KernelState;
  /** Its class; empty where that is not told. */
  readonly runsAs: string;
  readonly memory: readonly IMemory[];
  /** In the queue, from 1; null while it does not wait. */
  readonly position: number | null;
  /** For how much longer I keep the turn that it has by hand; 0 when I do not. */
  readonly holdLeftS: number;
  /** For how long I keep its next turn by hand, while it has none; 0 when I do not. */
  readonly holdToComeS: number;
  /** One of its processes was stopped from outside. */
  readonly frozen: boolean;
  /** Where it was put before it opened CUDA, or why nowhere; empty if it has not asked for it. */
  readonly placement: string;
  /** When its cell starts or goes on; null where that is not told. */
  readonly wait: IWait | null;
  /** The messages of the cells that it is executing while it waits. */
  readonly cells: readonly string[];
  /** What is in its way besides the queue, and what to do. */
  readonly blocked: string;
  readonly reason: string;
  /** What it was asked to give back last; null where it was asked nothing. */
  readonly trim: ITrim | null;
}

export const TRIM_STAGES = ['queued', 'runs', 'done', 'failed'] as const;
export type TrimStage = (typeof TRIM_STAGES)[number];

/** A wish that what its frameworks keep unused leaves the device. */
export interface ITrim {
  /** Higher, each time that a kernel is asked. */
  readonly number: number;
  readonly stage: TrimStage;
  /** Given back, once it is done. */
  readonly bytes: number;
  /** Why it failed, and what to do. */
  readonly message: string;
}

/** An estimate, as of the moment of the answer. */
export interface IWait {
  /** One of ten begins earlier, one of ten later. Null where nobody can say. */
  readonly earliestS: number | null;
  readonly latestS: number | null;
  /** What the cell has used of the GPU: above 0, it is paused. */
  readonly usedS: number;
  /** The part of the GPU that is its user's, from 0 to 1. */
  readonly share: number;
}

export const SCHEDULER_STATES = ['up', 'down', 'starting', 'off'] as const;
export type SchedulerState = (typeof SCHEDULER_STATES)[number];

export interface IState {
  readonly scheduler: SchedulerState;
  readonly message: string;
  /** Why there is no GPU, and what to do; empty where there is one, and where that is not told. */
  readonly noGpu: string;
  readonly user: string;
  /** The actions that the server passes on. */
  readonly actions: readonly string[];
  /** The longest time for which a turn may be kept by hand; 0 where it may not. */
  readonly holdMaxS: number;
  readonly devices: readonly IDevice[];
  readonly kernels: readonly IKernel[];
}

/** The other side is of another version: nothing in its answer may be trusted to mean the same. */
export class VersionMismatch extends Error {
  constructor(readonly theirs: string) {
    super(`state of version ${theirs}, not ${STATE_VERSION}`);
  }
}

/** The answer is of our version and yet not what was agreed. */
export class MalformedState extends Error {}

/** @throws VersionMismatch, MalformedState */
export function parseState(value: unknown): IState {
  const state = asRecord(value, 'state');
  if (state.version !== STATE_VERSION) {
    throw new VersionMismatch(
      typeof state.version === 'number' ? String(state.version) : 'unknown'
    );
  }
  return {
    scheduler: asOneOf(SCHEDULER_STATES, state.scheduler, 'scheduler', 'up'),
    message: asText(state.message, 'message'),
    noGpu: asText(state.no_gpu, 'no_gpu'),
    user: asText(state.user, 'user'),
    // An older server knows of no others.
    actions: absent(state.actions)
      ? ['release']
      : asList(state.actions, 'actions').map(each => asText(each, 'action')),
    holdMaxS: asAmount(state.hold_max_s, 'hold_max_s'),
    devices: asList(state.devices, 'devices').map(parseDevice),
    kernels: asList(state.kernels, 'kernels').map(parseKernel)
  };
}

function parseDevice(value: unknown): IDevice {
  const device = asRecord(value, 'device');
  return {
    id: asText(device.id, 'device.id'),
    name: asText(device.name, 'device.name'),
    bytesTotal: asAmount(device.bytes_total, 'device.bytes_total'),
    bytesUsed: asAmount(device.bytes_used, 'device.bytes_used'),
    bytesTenants: asAmount(device.bytes_tenants, 'device.bytes_tenants'),
    tenants: absent(device.tenants)
      ? []
      : asList(device.tenants, 'device.tenants').map(parseTenantMemory),
    simulated: device.simulated === true,
    bytesForeign: asKnownAmount(device.bytes_foreign, 'device.bytes_foreign'),
    bytesContexts: asKnownAmount(device.bytes_contexts, 'device.bytes_contexts'),
    bytesReserved: asKnownAmount(device.bytes_reserved, 'device.bytes_reserved'),
    lost: device.lost === true,
    mode: absent(device.mode) ? 'open' : asOneOf(DEVICE_MODES, device.mode, 'device.mode', 'open'),
    holder: absent(device.holder) ? null : parseHolder(device.holder),
    queue: asList(device.queue, 'device.queue').map(parseWaiter)
  };
}

function parseTenant(tenant: Record<string, unknown>): ITenant {
  return {
    tenantId: asText(tenant.tenant_id, 'tenant_id'),
    name: asText(tenant.name, 'name'),
    owner: asText(tenant.owner, 'owner'),
    mine: tenant.mine === true,
    runsAs: asText(tenant.runs_as, 'runs_as')
  };
}

function parseTenantMemory(value: unknown): ITenantMemory {
  const tenant = asRecord(value, 'tenant');
  return {
    ...parseTenant(tenant),
    bytesResident: asAmount(tenant.bytes_resident, 'bytes_resident')
  };
}

function parseHolder(value: unknown): IHolder {
  const holder = asRecord(value, 'holder');
  return {
    ...parseTenant(holder),
    heldS: asAmount(holder.held_s, 'held_s'),
    holdLeftS: asAmount(holder.hold_left_s, 'hold_left_s'),
    turnLeftS: asKnownAmount(holder.turn_left_s, 'turn_left_s'),
    frozen: holder.frozen === true
  };
}

function parseWaiter(value: unknown): IWaiter {
  const waiter = asRecord(value, 'waiter');
  return {
    ...parseTenant(waiter),
    position: asAmount(waiter.position, 'position'),
    waitedS: asAmount(waiter.waited_s, 'waited_s'),
    wait: absent(waiter.wait) ? null : parseWait(waiter.wait),
    why: asText(waiter.why, 'why')
  };
}

function parseKernel(value: unknown): IKernel {
  const kernel = asRecord(value, 'kernel');
  return {
    kernelId: asText(kernel.kernel_id, 'kernel_id'),
    tenantId: asText(kernel.tenant_id, 'tenant_id'),
    name: asText(kernel.name, 'kernel.name'),
    path: asText(kernel.path, 'kernel.path'),
    state: asOneOf(KERNEL_STATES, kernel.state, 'kernel.state', 'idle'),
    runsAs: asText(kernel.runs_as, 'kernel.runs_as'),
    memory: absent(kernel.memory) ? [] : asList(kernel.memory, 'kernel.memory').map(parseMemory),
    position: asKnownAmount(kernel.position, 'kernel.position'),
    holdLeftS: asAmount(kernel.hold_left_s, 'hold_left_s'),
    holdToComeS: asAmount(kernel.hold_to_come_s, 'hold_to_come_s'),
    frozen: kernel.frozen === true,
    placement: asText(kernel.placement, 'kernel.placement'),
    wait: absent(kernel.wait) ? null : parseWait(kernel.wait),
    cells: absent(kernel.cells)
      ? []
      : asList(kernel.cells, 'kernel.cells').map(cell => asText(cell, 'kernel.cells')),
    blocked: asText(kernel.blocked, 'kernel.blocked'),
    reason: asText(kernel.reason, 'kernel.reason'),
    trim: absent(kernel.trim) ? null : parseTrim(kernel.trim)
  };
}

function parseWait(value: unknown): IWait {
  const wait = asRecord(value, 'kernel.wait');
  return {
    earliestS: asKnownAmount(wait.earliest_s, 'wait.earliest_s'),
    latestS: asKnownAmount(wait.latest_s, 'wait.latest_s'),
    usedS: asAmount(wait.used_s, 'wait.used_s'),
    share: asAmount(wait.share, 'wait.share')
  };
}

function parseTrim(value: unknown): ITrim {
  const trim = asRecord(value, 'kernel.trim');
  return {
    number: asAmount(trim.number, 'trim.number'),
    stage: asOneOf(TRIM_STAGES, trim.stage, 'trim.stage', 'queued'),
    bytes: asAmount(trim.bytes, 'trim.bytes'),
    message: asText(trim.message, 'trim.message')
  };
}

/** A scheduler of an older package tells no kinds. */
function parseKinds<T extends string>(
  value: unknown,
  wanted: readonly T[]
): ReadonlyMap<T, number> {
  const kinds = value === undefined ? {} : asRecord(value, 'memory.kinds');
  return new Map(
    wanted
      .filter(kind => kinds[kind] !== undefined)
      .map(kind => [kind, asAmount(kinds[kind], `kinds.${kind}`)])
  );
}

function parseMemory(value: unknown): IMemory {
  const memory = asRecord(value, 'memory');
  return {
    deviceId: asText(memory.device, 'memory.device'),
    bytesResident: asAmount(memory.bytes_resident, 'bytes_resident'),
    bytesParked: asAmount(memory.bytes_parked, 'bytes_parked'),
    bytesFixed: asAmount(memory.bytes_fixed, 'bytes_fixed'),
    staying: parseKinds(memory.kinds, STAYING_KINDS),
    moving: parseKinds(memory.kinds, MOVING_KINDS),
    capBytes: asAmount(memory.cap_bytes, 'cap_bytes')
  };
}

/** What my kernels together have on the device. */
export function bytesOfMine(device: IDevice, kernels: readonly IKernel[]): number {
  return kernels
    .flatMap(kernel => kernel.memory)
    .filter(memory => memory.deviceId === device.id)
    .reduce((sum, memory) => sum + memory.bytesResident, 0);
}

/** For how long the kernel has waited; 0 where no device tells. */
export function waitedS(kernel: IKernel, devices: readonly IDevice[]): number {
  const waits = devices
    .flatMap(device => device.queue)
    .filter(waiter => waiter.tenantId === kernel.tenantId)
    .map(waiter => waiter.waitedS);
  return kernel.tenantId ? Math.max(0, ...waits) : 0;
}

/** For how much longer a turn that the kernel waits for is kept by hand; 0 when none is. */
export function holdInTheWayS(kernel: IKernel, devices: readonly IDevice[]): number {
  const left = devices
    .filter(device => device.queue.some(waiter => waiter.tenantId === kernel.tenantId))
    .map(device => device.holder?.holdLeftS ?? 0);
  return kernel.tenantId ? Math.max(0, ...left) : 0;
}

function absent(value: unknown): boolean {
  return value === null || value === undefined;
}

function asRecord(value: unknown, what: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new MalformedState(`${what} is not an object`);
  }
  return value as Record<string, unknown>;
}

function asList(value: unknown, what: string): readonly unknown[] {
  if (!Array.isArray(value)) {
    throw new MalformedState(`${what} is not a list`);
  }
  return value;
}

/** What the caller may not see is absent: it reads as an empty text. */
function asText(value: unknown, what: string): string {
  if (absent(value)) {
    return '';
  }
  if (typeof value !== 'string') {
    throw new MalformedState(`${what} is not a text`);
  }
  return value;
}

/** Bytes, seconds and positions: finite and never negative; absent reads as none. */
function asAmount(value: unknown, what: string): number {
  if (absent(value)) {
    return 0;
  }
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    throw new MalformedState(`${what} is not a number`);
  }
  return Math.max(0, value);
}

/** Null where it is not told. */
function asKnownAmount(value: unknown, what: string): number | null {
  return absent(value) ? null : asAmount(value, what);
}

/** A word of a newer server is taken for the one that says the least. */
function asOneOf<T extends string>(
  known: readonly T[],
  value: unknown,
  what: string,
  unknown: T
): T {
  if (typeof value !== 'string') {
    throw new MalformedState(`${what} is no word`);
  }
  return known.find(name => name === value) ?? unknown;
}
