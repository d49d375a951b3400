import { nullTranslator } from '@jupyterlab/translation';

import {
  formatBytes,
  formatDeviceId,
  formatDuration,
  formatKernel,
  formatKernelState,
  formatMemory,
  formatOwner,
  formatProblem,
  formatReason,
  formatTenant,
  memoryPercent
} from '../format';
import { KERNEL_STATES, parseState, type IDevice, type IKernel } from '../state';
import { device, kernel, state } from './support/states';

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

  it('begins the name of a device as nvidia-smi does', () => {
    expect(formatDeviceId(aDevice({}))).toBe('GPU-01234567');
  });

  it('calls a tenant as far as the caller may know it', () => {
    const known = { tenantId: 't', name: 'a.ipynb', owner: 'bob', mine: false };
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
  });

  it('tells the place in the queue and prefers the reason of the server', () => {
    const waiting = aKernel({ state: 'waits', position: 3, reason: 'Because.' });
    expect(formatKernelState(waiting, trans)).toBe('Number 3 in the queue');
    expect(formatReason(waiting, trans)).toBe('Because.');
  });

  it('names both versions where they differ, in one sentence', () => {
    const text = formatProblem({ kind: 'version', theirs: '2' }, trans);
    expect(text).toContain('version 1 here, 2 there');
    expect(text.match(/\.( |$)/g)).toHaveLength(1);
  });
});
