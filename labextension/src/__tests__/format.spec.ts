import { nullTranslator } from '@jupyterlab/translation';

import {
  formatBytes,
  formatDeviceId,
  formatDuration,
  formatKernel,
  formatKernelState,
  formatOwner,
  formatPart,
  formatProblem,
  formatReason,
  formatTenant,
  formatWait,
  formatWaitLine
} from '../format';
import {
  explainShares,
  formatKernelMemory,
  formatMemory,
  formatShare,
  memoryPercent,
  memoryShares
} from '../formatMemory';
import { KERNEL_STATES, parseState, type IDevice, type IKernel } from '../state';
import { device, holder, kernel, memory, state, waiter } from './support/states';

const trans = nullTranslator.load('jupyter_gpushare');

function aKernel(fields: object): IKernel {
  return only(parseState(state({ kernels: [kernel(fields)] })).kernels);
}

function aDevice(fields: object): IDevice {
  return only(parseState(state({ devices: [device(fields)] })).devices);
}

function only<T>(items: readonly T[]): T {
  const [item] = items;
  if (item === undefined) {
    throw new Error('there is none');
  }
  return item;
}

describe('format', () => {
  it.each([
    [0, '0 B'],
    [1023, '1023 B'],
    [1024, '1.0 KiB'],
    [10 * 1024, '10 KiB'],
    [1024 ** 2 - 1, '1.0 MiB'],
    [3.25 * 1024 ** 3, '3.3 GiB'],
    [139.8 * 1024 ** 3, '140 GiB'],
    [2 * 1024 ** 6, '2048 PiB']
  ])('says %d bytes as %s', (bytes, text) => {
    expect(formatBytes(bytes)).toBe(text);
  });

  it.each([
    [-1, '0 s'],
    [59.9, '59 s'],
    [60, '1 min'],
    [3599, '59 min'],
    [3600, '1 h 0 min'],
    [90061, '25 h 1 min']
  ])('says %d seconds as %s', (seconds, text) => {
    expect(formatDuration(seconds, trans)).toBe(text);
  });

  it('keeps the memory bar within its ends', () => {
    expect(memoryPercent(aDevice({ bytes_used: 4 * 1024 ** 3 }))).toBe(50);
    expect(memoryPercent(aDevice({ bytes_used: 9 * 1024 ** 3 }))).toBe(100);
    expect(memoryPercent(aDevice({ bytes_total: 0 }))).toBe(0);
    expect(formatMemory(aDevice({}), trans)).toBe('2.0 GiB of 8.0 GiB');
  });

  it('tells whose the memory of a device is', () => {
    const gib = 1024 ** 3;
    const told = { bytes_tenants: 3 * gib, bytes_foreign: 2 * gib, bytes_reserved: gib };
    const texts = (fields: object, mine: number): string[] =>
      memoryShares(aDevice(fields), mine).map(share => formatShare(share, trans));
    expect(texts({ ...told, bytes_used: 5 * gib }, gib)).toEqual([
      'mine 1.0 GiB',
      'others 2.0 GiB',
      'other programs 2.0 GiB',
      'Kept free 1.0 GiB'
    ]);
    // A scheduler that tells of neither: the rest of what NVML counts is not shared.
    expect(texts({ bytes_tenants: gib, bytes_used: 3 * gib }, gib)).toEqual([
      'mine 1.0 GiB',
      'other programs 2.0 GiB'
    ]);
    expect(texts({ bytes_total: 0, bytes_used: 0 }, 0)).toEqual([]);
  });

  it('tells contexts of kernels from other programs', () => {
    const gib = 1024 ** 3;
    const told = { bytes_tenants: 0, bytes_foreign: 3 * gib, bytes_contexts: gib };
    const shares = memoryShares(aDevice({ ...told, bytes_used: 3 * gib }), 0);
    expect(shares.map(share => formatShare(share, trans)).slice(0, 2)).toEqual([
      'CUDA contexts 1.0 GiB',
      'other programs 2.0 GiB'
    ]);
    expect(explainShares(shares, trans)).toContain(
      'CUDA contexts 1.0 GiB: what CUDA takes for each notebook'
    );
    expect(explainShares([], trans)).not.toContain('CUDA contexts');
  });

  it('never fills the bar beyond its end', () => {
    const amounts = { bytes_tenants: 9e12, bytes_foreign: 9e12, bytes_reserved: 9e12 };
    const shares = memoryShares(aDevice(amounts), 9e12);
    expect(shares.map(({ kind, percent }) => [kind, percent])).toEqual([['mine', 100]]);
  });

  it('tells what a kernel has on the device, parked and fixed, and its limit', () => {
    const texts = (fields: object): string[] =>
      formatKernelMemory(only(aKernel({ memory: [memory(fields)] }).memory), trans).map(
        ({ words }) => words
      );
    expect(texts({})).toEqual(['1.0 GiB on the GPU']);
    expect(texts({ bytes_resident: 0, cap_bytes: 2 ** 30 })).toEqual([]);
    expect(
      texts({
        bytes_resident: 0,
        bytes_parked: 12 * 2 ** 30,
        bytes_fixed: 2 ** 20,
        cap_bytes: 40 * 2 ** 30
      })
    ).toEqual(['12 GiB in host memory', 'cannot move 1.0 MiB', 'limit 40 GiB']);
  });

  it('tells why memory cannot move, the most first', () => {
    const kinds = { plain: 2 ** 30, managed: 2 ** 20, graphs: 3 * 2 ** 20 };
    const fields = { bytes_fixed: 4 * 2 ** 20, kinds };
    const shares = formatKernelMemory(only(aKernel({ memory: [memory(fields)] }).memory), trans);
    expect(shares.map(({ words }) => words)).toContain(
      'cannot move 4.0 MiB (3.0 MiB of graphs, 1.0 MiB managed)'
    );
  });

  it('tells of which kinds memory is that moves, where not all is plain', () => {
    const texts = (kinds: object): string[] =>
      formatKernelMemory(only(aKernel({ memory: [memory({ kinds })] }).memory), trans).map(
        ({ words }) => words
      );
    expect(texts({ plain: 2 ** 30 })).toEqual(['1.0 GiB on the GPU']);
    expect(texts({ plain: 2 ** 20, mapped: 3 * 2 ** 20, pooled: 2 ** 21 })).toEqual([
      '1.0 GiB on the GPU',
      'by kind 3.0 MiB mapped, 2.0 MiB stream-ordered, 1.0 MiB plain'
    ]);
  });

  it('begins the name of a device as nvidia-smi does', () => {
    expect(formatDeviceId(aDevice({}))).toBe('GPU-01234567');
  });

  it('calls a tenant as far as the caller may know it', () => {
    const known = { tenantId: 't', name: 'a.ipynb', owner: 'bob', mine: false, runsAs: '' };
    expect(formatTenant(known, trans)).toBe('a.ipynb');
    expect(formatOwner(known, trans)).toBe('bob');
    expect(formatOwner({ ...known, mine: true }, trans)).toBe('you');
    const unknown = { ...known, name: '', owner: 'another user' };
    expect(formatTenant(unknown, trans)).toBe('another user');
    expect(formatOwner(unknown, trans)).toBe('');
    expect(formatTenant({ ...unknown, owner: '' }, trans)).toBe('another user');
  });

  it('calls a kernel after its notebook, or else by its own name', () => {
    expect(formatKernel(aKernel({ path: 'a/b/train me.ipynb' }))).toBe('train me.ipynb');
    expect(formatKernel(aKernel({ path: '', name: 'julia' }))).toBe('julia');
    expect(formatKernel(aKernel({ path: '', name: '', kernel_id: '0123456789' }))).toBe('01234567');
  });

  it('has a text and a reason for each state of a kernel', () => {
    const texts = KERNEL_STATES.map(name => formatKernelState(aKernel({ state: name }), trans));
    expect(texts).toEqual(['Idle', 'Waits', 'Has the GPU', 'Not shared', 'Failed']);
    for (const name of KERNEL_STATES) {
      expect(formatReason(aKernel({ state: name }), trans)).not.toBe('');
    }
    const kept = aKernel({ state: 'holds', hold_left_s: 9 });
    expect(formatReason(kept, trans)).toContain('“%gpushare hold 0”');
  });

  it('tells the place in the queue and prefers the reason of the server', () => {
    const waiting = aKernel({ state: 'waits', position: 3, reason: 'Because.' });
    expect(formatKernelState(waiting, trans)).toBe('Number 3 in the queue');
    expect(formatReason(waiting, trans)).toBe('Because.');
  });

  it('tells when a cell starts, and when one goes on that was paused', () => {
    const soon = { earliestS: 10.4, latestS: 41, usedS: 0, share: 1 / 3 };
    expect(formatWait(soon, 0, trans)).toBe('starts in about 10–41 s');
    expect(formatWait(soon, 10, trans)).toBe('starts in at most 31 s');
    expect(formatWait(soon, 60, trans)).toBe('starts in a moment');
    const paused = { ...soon, usedS: 30 };
    expect(formatWait(paused, 0, trans)).toBe(
      'paused after 30 s, goes on in about 10–41 s; its share is a third of the GPU'
    );
    expect(formatWait({ ...soon, earliestS: 45, latestS: 300 }, 0, trans)).toBe(
      'starts in about 45 s to 5 min'
    );
    expect(formatWait({ ...soon, earliestS: 29.9, latestS: 30.2 }, 0, trans)).toBe(
      'starts in about 30 s'
    );
    expect(formatWait({ ...soon, earliestS: 7000, latestS: 90_000 }, 0, trans)).toBe(
      'starts in about 2–25 h'
    );
  });

  it('says so where nobody can tell a time', () => {
    const never = { earliestS: null, latestS: null, usedS: 0, share: 1 };
    expect(formatWait(never, 0, trans)).toBe('nobody can say when it starts');
    expect(formatWait({ ...never, usedS: 200 }, 0, trans)).toBe(
      'paused after 3 min, nobody can say until when'
    );
  });

  function waitLine(waiting: object, has: object | null, sinceS = 0): string {
    const parsed = parseState(
      state({
        devices: [
          device({
            holder: has,
            queue: [waiter({ tenant_id: 'x' }), waiter({ tenant_id: 't1', owner: 'alice' })]
          })
        ],
        kernels: [kernel({ state: 'waits', position: 2, ...waiting })]
      })
    );
    const text = formatWaitLine(only(parsed.kernels), parsed.devices, sinceS, trans);
    return text.replace(/[\u2068\u2069]/g, '');
  }

  it('says at the cell its place, when it starts, who is before it and what to do', () => {
    const wait = { earliest_s: 20, latest_s: 45, used_s: 0, share: 1 };
    const unknown = holder({
      mine: false,
      name: 'another user',
      owner: 'another user',
      held_s: 18
    });
    expect(waitLine({ wait }, unknown)).toBe(
      'Waiting for the GPU: 2nd of 2, about 20–45 s. Another user is using it (18 s). Interrupt the kernel to cancel.'
    );
    expect(waitLine({ wait }, unknown, 20)).toContain('2nd of 2, at most 25 s.');
    expect(waitLine({ wait }, unknown, 10)).toContain(
      'about 10–35 s. Another user is using it (28 s)'
    );
    const bob = holder({ mine: false, name: 'a.ipynb', owner: 'bob', hold_left_s: 90 });
    expect(waitLine({ blocked: 'It is full. Wait.', position: 11 }, bob)).toBe(
      'Waiting for the GPU: 11th of 11. bob: a.ipynb has reserved it for 1 min more. It is full. Wait. Interrupt the kernel to cancel.'
    );
    const other = holder({ name: 'other.ipynb' });
    expect(waitLine({ wait }, other, 45)).toContain(
      '2nd of 2, any moment now. other.ipynb is using'
    );
    expect(waitLine({ position: null }, null)).toBe(
      'Waiting for the GPU. Interrupt the kernel to cancel.'
    );
  });

  it('says calmly at a cell that is paused when it goes on', () => {
    const wait = { earliest_s: 10, latest_s: 20, used_s: 30, share: 1 / 3 };
    expect(waitLine({ wait }, holder())).toBe(
      'Paused after 30 s, goes on in about 10–20 s; your share is a third of the GPU.'
    );
    expect(waitLine({ wait: { ...wait, latest_s: null } }, holder())).toBe(
      'Paused after 30 s, nobody can say until when; your share is a third of the GPU.'
    );
    expect(waitLine({ wait: { ...wait, share: 1 } }, holder())).toBe(
      'Paused after 30 s, goes on in about 10–20 s.'
    );
  });

  it('tells a share as a fraction where it is near one', () => {
    const parts = [0.5, 0.333, 0.25, 0.4, 0.001].map(part => formatPart(part, trans));
    expect(parts.map(part => part.replace(' of the GPU', ''))).toEqual([
      'half',
      'a third',
      'a quarter',
      '2/5',
      '0 %'
    ]);
    expect(parts.every(part => part.endsWith(' of the GPU'))).toBe(true);
  });

  it('names both versions where they differ, in one sentence', () => {
    const text = formatProblem({ kind: 'version', theirs: '2' }, trans);
    expect(text).toContain('version 1 here, 2 there');
    expect(text.match(/\.( |$)/g)).toHaveLength(1);
  });
});
