/** Which waits of mine have ended, and which of them are worth telling: pure functions. */

import type { TranslationBundle } from '@jupyterlab/translation';

import { formatDuration, formatKernel } from '../format';
import type { ISnapshot } from '../model';
import { waitedS, type IKernel } from '../state';
import type { ISettings } from './settings';
import { heldS } from './words';

/** A kernel of mine that was seen waiting. */
export interface IWaitSeen {
  /** The same in each page that sees this wait. */
  readonly key: string;
  readonly sinceMs: number;
  /** Its cell had the GPU before, so its user knows that it is under way. */
  readonly isPaused: boolean;
}

/** By kernel. */
export type WaitsSeen = ReadonlyMap<string, IWaitSeen>;

/** A wait that has ended. */
export interface IServed {
  readonly kernel: IKernel;
  readonly wait: IWaitSeen;
  readonly waitedS: number;
}

/** What waits now, and what has ended since the look before. A kernel that is gone ends no wait. */
export function lookAtWaits(
  before: WaitsSeen,
  { receivedAtMs, state }: ISnapshot
): { readonly waits: WaitsSeen; readonly ended: readonly IServed[] } {
  const waits = new Map<string, IWaitSeen>();
  const ended: IServed[] = [];
  for (const kernel of state.kernels) {
    const seen = before.get(kernel.kernelId);
    if (kernel.state === 'waits') {
      const sinceMs = receivedAtMs - 1000 * waitedS(kernel, state.devices);
      const key = keyOf(kernel, sinceMs);
      const isPaused = (kernel.wait?.usedS ?? 0) > 0;
      waits.set(
        kernel.kernelId,
        seen?.key === key ? { ...seen, isPaused } : { key, sinceMs, isPaused }
      );
    } else if (seen) {
      const servedAtMs = receivedAtMs - 1000 * heldS(kernel, state.devices);
      const waited = Math.max(0, (servedAtMs - seen.sinceMs) / 1000);
      ended.push({ kernel, wait: seen, waitedS: waited });
    }
  }
  return { waits, ended };
}

function keyOf(kernel: IKernel, sinceMs: number): string {
  // A server of an older version tells no cells. Two pages then agree to some seconds.
  const which = kernel.cells.join(' ') || String(Math.round(sinceMs / 10_000));
  return `${kernel.kernelId} ${which}`;
}

/** Never a nag: whoever interrupted a wait, or whose cell was only paused, knows already. */
export function isWorthTelling(served: IServed, isAsked: boolean, settings: ISettings): boolean {
  if (isAsked) {
    return true;
  }
  if (served.kernel.state !== 'holds' || served.wait.isPaused) {
    return false;
  }
  switch (settings.notifyWhenServed) {
    case 'never':
      return false;
    case 'long-waits':
      return served.waitedS >= settings.notifyAfterS;
    case 'always':
      return true;
  }
}

/** `train.ipynb has the GPU after 2 min of waiting.` */
export function formatServed(served: IServed, trans: TranslationBundle): string {
  const name = `\u2068${formatKernel(served.kernel)}\u2069`;
  return served.kernel.state === 'holds'
    ? trans.__('%1 has the GPU after %2 of waiting.', name, formatDuration(served.waitedS, trans))
    : trans.__('%1 no longer waits for the GPU.', name);
}
