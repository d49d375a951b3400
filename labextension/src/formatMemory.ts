/** How memory is worded: whose that of a device is, and what a kernel has of it. Pure. */

import type { TranslationBundle } from '@jupyterlab/translation';

import { formatBytes } from './format';
import type { IDevice, IMemory, MovingKind, StayingKind } from './state';

export function formatMemory(device: IDevice, trans: TranslationBundle): string {
  return trans.__('%1 of %2', formatBytes(device.bytesUsed), formatBytes(device.bytesTotal));
}

/** Of the device's memory in use, for the bar; never beyond the bar's ends. */
export function memoryPercent(device: IDevice): number {
  if (device.bytesTotal <= 0) {
    return 0;
  }
  return Math.min(100, Math.max(0, (100 * device.bytesUsed) / device.bytesTotal));
}

/** A part of the memory bar, from its beginning on; the last one, `reserved`, is at its end. */
export interface IMemoryShare {
  readonly kind: 'mine' | 'others' | 'contexts' | 'foreign' | 'reserved';
  readonly bytes: number;
  readonly percent: number;
}

/** Whose the device's memory is. What NVML counts beyond what tenants tell is nobody's of them. */
export function memoryShares(device: IDevice, bytesMine: number): readonly IMemoryShare[] {
  const { bytesForeign, bytesReserved, bytesTenants, bytesTotal, bytesUsed } = device;
  const bytesContexts = device.bytesContexts ?? 0;
  const amounts = [
    ['mine', bytesMine],
    ['others', bytesTenants - bytesMine],
    ['contexts', bytesContexts],
    ['foreign', (bytesForeign ?? bytesUsed - bytesTenants) - bytesContexts],
    ['reserved', bytesReserved ?? 0]
  ] as const;
  let left = bytesTotal;
  return amounts.flatMap(([kind, amount]) => {
    const bytes = Math.min(Math.max(0, amount), left);
    left -= bytes;
    return bytes > 0 ? [{ kind, bytes, percent: (100 * bytes) / bytesTotal }] : [];
  });
}

export function formatShare(share: IMemoryShare, trans: TranslationBundle): string {
  const amount = formatBytes(share.bytes);
  switch (share.kind) {
    case 'mine':
      return trans.__('mine %1', amount);
    case 'others':
      return trans.__('others %1', amount);
    case 'contexts':
      return trans.__('CUDA contexts %1', amount);
    case 'foreign':
      return trans.__('other programs %1', amount);
    case 'reserved':
      return trans.__('Kept free %1', amount);
  }
}

/** What need not stand below the bar. */
export function isDetail({ kind }: IMemoryShare): boolean {
  return kind === 'contexts' || kind === 'reserved';
}

/** What is meant by the words of `formatShare`, and the details with their amounts. */
export function explainShares(shares: readonly IMemoryShare[], trans: TranslationBundle): string {
  const details = shares.map(share => {
    switch (share.kind) {
      case 'contexts':
        return trans.__(
          '%1: what CUDA takes for each notebook that uses the GPU, until it is shut down.',
          formatShare(share, trans)
        );
      case 'reserved':
        return trans.__('%1: room for what CUDA needs without asking.', formatShare(share, trans));
      default:
        return '';
    }
  });
  return [
    trans.__('Others: notebooks and programs that share the GPU too.'),
    trans.__('Other programs: those that do not share it, and CUDA itself.'),
    ...details
  ]
    .filter(Boolean)
    .join(' ');
}

/** One of the amounts that tell what a kernel has of a device. */
export interface IKernelShare {
  readonly kind: 'resident' | 'parked' | 'kinds' | 'fixed' | 'cap';
  readonly words: string;
}

/** Amounts with what they are, the largest first. */
function listed<T extends string>(
  amounts: ReadonlyMap<T, number>,
  words: Record<T, string>
): string {
  return [...amounts]
    .sort(([, left], [, right]) => right - left)
    .map(([kind, bytes]) => `${formatBytes(bytes)} ${words[kind]}`)
    .join(', ');
}

/** Of which kinds what can move is; empty where all is plain, as it is of most programs. */
function formatMoving(memory: IMemory, trans: TranslationBundle): string {
  const words: Record<MovingKind, string> = {
    plain: trans.__('plain'),
    mapped: trans.__('mapped'),
    pooled: trans.__('stream-ordered'),
    prefetched: trans.__('managed')
  };
  const others = [...memory.moving.keys()].some(kind => kind !== 'plain');
  return others ? trans.__('by kind %1', listed(memory.moving, words)) : '';
}

/** What cannot move, and of which kinds it is. */
function formatFixed(memory: IMemory, trans: TranslationBundle): string {
  const all = trans.__('cannot move %1', formatBytes(memory.bytesFixed));
  const words: Record<StayingKind, string> = {
    stopped: trans.__('used by others'),
    driver_pools: trans.__('of the driver’s pools'),
    graphs: trans.__('of graphs'),
    managed: trans.__('managed'),
    arrays: trans.__('arrays'),
    other: trans.__('other')
  };
  const kinds = listed(memory.staying, words);
  return kinds ? `${all} (${kinds})` : all;
}

/** What one kernel has of one device; empty when it has nothing there. */
export function formatKernelMemory(
  memory: IMemory,
  trans: TranslationBundle
): readonly IKernelShare[] {
  const { bytesFixed, bytesParked, bytesResident, capBytes } = memory;
  if (bytesResident <= 0 && bytesParked <= 0) {
    return [];
  }
  const kinds = formatMoving(memory, trans);
  const amounts = [
    ['resident', bytesResident, trans.__('%1 on the GPU', formatBytes(bytesResident))],
    ['parked', bytesParked, trans.__('%1 in host memory', formatBytes(bytesParked))],
    ['kinds', kinds.length, kinds],
    ['fixed', bytesFixed, formatFixed(memory, trans)],
    ['cap', capBytes, trans.__('limit %1', formatBytes(capBytes))]
  ] as const;
  return amounts.flatMap(([kind, size, words]) => (size > 0 ? [{ kind, words }] : []));
}

/** What is meant by the words of `formatKernelMemory` that do not explain themselves. */
export function explainKernelMemory(trans: TranslationBundle): string {
  return trans.__(
    'Host memory is the machine’s own: what lies there comes back with the next turn. What cannot move stays on the GPU until the kernel ends.'
  );
}
