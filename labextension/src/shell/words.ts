/** How the GPU is told at a glance: pure functions from a state to a few words. */

import type { TranslationBundle } from '@jupyterlab/translation';

import {
  formatDuration,
  formatKernel,
  formatNoGpu,
  formatProblem,
  formatReason,
  formatShortRange,
  formatWaitLine,
  ordinal
} from '../format';
import type { ISnapshot, Problem } from '../model';
import { UNNAMED, type IDevice, type IHolder, type IKernel, type IState } from '../state';

/** A longer name is cut. */
const NAME_MAX = 24;

/** What stands in the status bar, and what a screen reader says instead. */
export interface IGlance {
  /** Some kinds have a sign of their own shape, the same as the badges (style/base.css). */
  readonly kind: 'holds' | 'waits' | 'paused' | 'idle' | 'none' | 'trouble';
  /** What follows "GPU", or stands alone where there is none. */
  readonly text: string;
  readonly label: string;
}

/** The kernel that a glance is about: the one asked for, else the one of mine that matters most. */
export function kernelAtAGlance(
  kernels: readonly IKernel[],
  kernelId: string | undefined
): IKernel | undefined {
  const waiting = kernels
    .filter(kernel => kernel.state === 'waits')
    .sort((a, b) => (a.position ?? Infinity) - (b.position ?? Infinity));
  return (
    kernels.find(kernel => kernel.kernelId === kernelId) ??
    kernels.find(kernel => kernel.state === 'holds') ??
    waiting[0]
  );
}

/** Whether the words change by themselves, as time goes by. */
export function isCounting(kernel: IKernel | undefined): boolean {
  return kernel?.state === 'holds' || kernel?.state === 'waits';
}

/** Null where nothing is shared: then there is nothing to tell. */
export function glanceAt(
  snapshot: ISnapshot | null,
  problem: Problem | null,
  kernelId: string | undefined,
  sinceS: number,
  trans: TranslationBundle
): IGlance | null {
  if (problem) {
    return problem.kind === 'not-installed' ? null : inTrouble(formatProblem(problem, trans));
  }
  if (!snapshot || snapshot.state.scheduler === 'off') {
    return null;
  }
  const { state } = snapshot;
  if (state.scheduler !== 'up') {
    return inTrouble(state.message || trans.__('The scheduler of the GPU does not answer.'));
  }
  if (state.devices.length === 0) {
    return { kind: 'none', text: trans.__('No GPU'), label: formatNoGpu(state, trans) };
  }
  const kernel = kernelAtAGlance(state.kernels, kernelId);
  return kernel ? glanceAtKernel(kernel, state, sinceS, trans) : glanceAtNone(state, trans);
}

function inTrouble(label: string): IGlance {
  return { kind: 'trouble', text: '?', label };
}

function glanceAtNone(state: IState, trans: TranslationBundle): IGlance {
  return glanceAtDevices(state, trans.__('No notebook of yours uses it now.'), trans);
}

/** Of a notebook that has no part in it: whether the GPU is free, or whose it is. */
function glanceAtDevices({ devices }: IState, mine: string, trans: TranslationBundle): IGlance {
  const text = formatUse(devices, trans);
  const whole = trans.__('GPU %1.', text);
  return { kind: 'idle', text, label: `${whole} ${mine}` };
}

/** `free`, `in use by train.ipynb`, `in use, 2 wait`; of several devices `1 of 2 in use`. */
export function formatUse(devices: readonly IDevice[], trans: TranslationBundle): string {
  const taken = devices.filter(device => device.holder !== null || device.queue.length > 0);
  const waiting = new Set(devices.flatMap(({ queue }) => queue.map(each => each.tenantId))).size;
  if (taken.length === 0) {
    return devices.some(({ mode }) => mode === 'open') ? trans.__('free') : trans.__('paused');
  }
  if (devices.length > 1) {
    const used = trans.__('%1 of %2 in use', taken.length, devices.length);
    return waiting > 0 ? `${used}, ${formatWaiting(waiting, trans)}` : used;
  }
  if (waiting > 0) {
    return `${trans.__('in use')}, ${formatWaiting(waiting, trans)}`;
  }
  const name = nameOf(taken[0]?.holder ?? null);
  return name ? trans.__('in use by %1', name) : trans.__('in use');
}

function formatWaiting(count: number, trans: TranslationBundle): string {
  return trans._n('%1 waits', '%1 wait', count);
}

/** Short enough for a status bar, and empty where the reader may not know it. */
function nameOf(holder: IHolder | null): string {
  const name = holder ? holder.name || holder.owner : '';
  if (!name || name === UNNAMED) {
    return '';
  }
  const letters = Array.from(name);
  const short = letters.length > NAME_MAX ? `${letters.slice(0, NAME_MAX - 1).join('')}…` : name;
  return `\u2068${short}\u2069`;
}

function glanceAtKernel(
  kernel: IKernel,
  state: IState,
  sinceS: number,
  trans: TranslationBundle
): IGlance {
  const { devices } = state;
  const name = `\u2068${formatKernel(kernel)}\u2069`;
  const explained = (): string => `${name}: ${formatReason(kernel, trans)}`;
  switch (kernel.state) {
    case 'holds': {
      const held = formatDuration(heldS(kernel, devices) + sinceS, trans);
      return {
        kind: 'holds',
        text: held,
        label: trans.__('%1 has had the GPU for %2.', name, held)
      };
    }
    case 'waits':
      return {
        kind: isPaused(kernel) ? 'paused' : 'waits',
        text: formatWaitAtAGlance(kernel, sinceS, trans),
        label: `${name}: ${formatWaitLine(kernel, devices, sinceS, trans)}`
      };
    case 'idle':
      return glanceAtDevices(state, trans.__('%1 does not use it now.', name), trans);
    case 'unshared':
      return { kind: 'trouble', text: trans.__('not shared'), label: explained() };
    case 'failed':
      return { kind: 'trouble', text: trans.__('failed'), label: explained() };
  }
}

/** `2nd · 20–45 s`; a cell that is paused in the middle has no place worth telling. */
function formatWaitAtAGlance(kernel: IKernel, sinceS: number, trans: TranslationBundle): string {
  const range = formatRangeAtAGlance(kernel, sinceS, trans);
  if (isPaused(kernel)) {
    return range || trans.__('paused');
  }
  const place = kernel.position === null ? '' : ordinal(kernel.position, trans);
  return [place, range].filter(Boolean).join(' · ') || trans.__('waits');
}

function isPaused(kernel: IKernel): boolean {
  return (kernel.wait?.usedS ?? 0) > 0;
}

function formatRangeAtAGlance(kernel: IKernel, sinceS: number, trans: TranslationBundle): string {
  const { wait } = kernel;
  return !wait || wait.earliestS === null || wait.latestS === null
    ? ''
    : formatShortRange(wait.earliestS - sinceS, wait.latestS - sinceS, trans);
}

/** For how long the kernel has had the GPU; 0 where no device tells. */
export function heldS(kernel: IKernel, devices: readonly IDevice[]): number {
  const times = devices.map(({ holder }) =>
    kernel.tenantId && holder?.tenantId === kernel.tenantId ? holder.heldS : 0
  );
  return Math.max(0, ...times);
}

/** What is wrong, as far as the server says it, and who knows more. */
export function formatHelp(
  snapshot: ISnapshot | null,
  problem: Problem | null,
  trans: TranslationBundle
): string {
  const known = problem ? formatProblem(problem, trans) : snapshot?.state.message;
  return [
    known || trans.__('The server reports nothing wrong.'),
    trans.__(
      '“%gpushare doctor” in a cell, or “jupyter gpushare doctor” in a terminal, looks at everything and says what to do.'
    )
  ].join(' ');
}
