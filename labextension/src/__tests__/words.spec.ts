import { nullTranslator } from '@jupyterlab/translation';

import type { ISnapshot, Problem } from '../model';
import { formatHelp, glanceAt, type IGlance } from '../shell/words';
import { parseState } from '../state';
import { device, holder, kernel, state, waiter } from './support/states';

const trans = nullTranslator.load('jupyter_gpushare');
const WAIT = { earliest_s: 20, latest_s: 45, used_s: 0, share: 0.5 };

function snapshotOf(fields: object): ISnapshot {
  return { state: parseState(state(fields)), receivedAtMs: 0 };
}

function glance(fields: object, kernelId?: string, sinceS = 0): IGlance | null {
  return glanceAt(snapshotOf(fields), null, kernelId, sinceS, trans);
}

/** A label without the marks that keep a name of another script to itself. */
function labelOf(glance: IGlance | null): string | undefined {
  return glance?.label.replace(/[\u2068\u2069]/g, '');
}

describe('glanceAt', () => {
  const holds = {
    devices: [device({ holder: holder({ held_s: 10 }) })],
    kernels: [kernel({ state: 'holds' })]
  };
  const waits = (wait: object): object => ({
    devices: [
      device({
        holder: holder({ tenant_id: 'other', name: 'theirs.ipynb', owner: 'bob' }),
        queue: [waiter(), waiter({ tenant_id: 't1', position: 2 })]
      })
    ],
    kernels: [kernel({ state: 'waits', position: 2, wait })]
  });

  it('says that a kernel has the GPU and for how long, which goes on', () => {
    expect(glance(holds, 'k1', 2)).toMatchObject({ kind: 'holds', text: '12 s' });
    expect(labelOf(glance(holds, 'k1', 2))).toBe('train.ipynb has had the GPU for 12 s.');
  });

  it('says which place in the queue a kernel has and when it starts, which comes nearer', () => {
    expect(glance(waits(WAIT), 'k1')?.text).toBe('2nd · 20–45 s');
    expect(glance(waits(WAIT), 'k1', 10)?.text).toBe('2nd · 10–35 s');
    expect(labelOf(glance(waits(WAIT), 'k1'))).toMatch(
      /^train.ipynb: Waiting for the GPU: 2nd of 2, about 20–45 s\. theirs.ipynb is using it/
    );
  });

  it('says of a wait that nobody can estimate the place alone', () => {
    expect(glance(waits({ ...WAIT, latest_s: null }), 'k1')?.text).toBe('2nd');
    const early = { devices: [device()], kernels: [kernel({ state: 'waits' })] };
    expect(glance(early, 'k1')?.text).toBe('waits');
  });

  it('shows a paused cell with another sign than one that has not begun', () => {
    expect(glance(waits({ ...WAIT, used_s: 30 }), 'k1')).toMatchObject({
      kind: 'paused',
      text: '20–45 s'
    });
    const unknown = { ...WAIT, used_s: 30, earliest_s: null };
    expect(glance(waits(unknown), 'k1')?.text).toBe('paused');
  });

  it('is about the current notebook, although another one has the GPU', () => {
    const both = { ...holds, kernels: [...holds.kernels, kernel({ kernel_id: 'k2' })] };
    expect(labelOf(glance(both, 'k2'))).toBe(
      'GPU in use by train.ipynb. train.ipynb does not use it now.'
    );
  });

  it('is about this server where no notebook is in front: who has it, then who is next', () => {
    expect(glance(holds)?.kind).toBe('holds');
    const queued = [
      kernel({ kernel_id: 'a', state: 'waits', position: 3 }),
      kernel({ kernel_id: 'b', state: 'waits', position: 1 })
    ];
    expect(glance({ kernels: queued }, 'gone')?.text).toBe('1st');
    expect(glance({ kernels: [kernel()] })?.label).toBe(
      'GPU free. No notebook of yours uses it now.'
    );
  });

  it('says whether the GPU is free, or whose it is, as far as the reader may know that', () => {
    const text = (...devices: object[]): string | undefined =>
      glance({ devices, kernels: [kernel()] }, 'k1')?.text.replace(/[\u2068\u2069]/g, '');
    const theirs = { tenant_id: 'other', mine: false, name: 'theirs.ipynb', owner: 'bob' };
    const hidden = { ...theirs, name: 'another user', owner: 'another user' };
    const busy = device({ holder: holder(theirs) });
    expect(text(device())).toBe('free');
    expect(text(device({ mode: 'paused' }))).toBe('paused');
    expect(text(busy)).toBe('in use by theirs.ipynb');
    expect(text(device({ holder: holder(hidden) }))).toBe('in use');
    const long = holder({ ...theirs, name: `${'a'.repeat(40)}.ipynb` });
    expect(text(device({ holder: long }))).toBe(`in use by ${'a'.repeat(23)}…`);
    const queue = [waiter(), waiter({ tenant_id: 't3' })];
    expect(text(device({ holder: holder(theirs), queue }))).toBe('in use, 2 wait');
    expect(text(device({ queue: [waiter()] }))).toBe('in use, 1 waits');
    expect(text(device(), busy)).toBe('1 of 2 in use');
    expect(text(device({ queue }), busy)).toBe('2 of 2 in use, 2 wait');
  });

  it('says that there is no GPU, and what to do', () => {
    const none = glance({ devices: [], kernels: [kernel()] }, 'k1');
    expect(none).toMatchObject({ kind: 'none', text: 'No GPU' });
    expect(none?.label).toMatch(/%gpushare doctor.*jupyter gpushare try/);
    const told = { devices: [], no_gpu: 'The driver does not answer. Install it.' };
    expect(glance(told)?.label).toMatch(/^The driver does not answer\. Install it\. .*try/);
  });

  it('names what is wrong with a kernel that takes no turns', () => {
    expect(glance({ kernels: [kernel({ state: 'unshared' })] }, 'k1')?.text).toBe('not shared');
    const failed = glance({ kernels: [kernel({ state: 'failed' })] }, 'k1');
    expect(failed?.text).toBe('failed');
    expect(failed?.label).toContain('Restart the kernel');
  });

  it('says that it does not know where nobody answers, and why', () => {
    const unreachable: Problem = { kind: 'unreachable' };
    const lost = glanceAt(snapshotOf(holds), unreachable, 'k1', 0, trans);
    expect(lost).toMatchObject({ kind: 'trouble', text: '?' });
    expect(lost?.label).toContain('does not answer');
    const down = glance({ scheduler: 'down', message: 'It has ended.' });
    expect(down).toMatchObject({ text: '?', label: 'It has ended.' });
    expect(glance({ scheduler: 'starting' })?.label).toContain('does not answer');
  });

  it('says nothing where nothing is shared', () => {
    expect(glance({ scheduler: 'off' })).toBeNull();
    expect(glanceAt(null, { kind: 'not-installed' }, 'k1', 0, trans)).toBeNull();
    expect(glanceAt(null, null, 'k1', 0, trans)).toBeNull();
  });
});

describe('formatHelp', () => {
  it('says what is wrong, as far as that is known, and always who knows more', () => {
    const wrong = formatHelp(null, { kind: 'unreachable' }, trans);
    expect(wrong).toMatch(/^The Jupyter server does not answer.*%gpushare doctor/);
    const told = formatHelp(snapshotOf({ scheduler: 'down', message: 'It ended.' }), null, trans);
    expect(told).toMatch(/^It ended\. .*jupyter gpushare doctor/);
    expect(formatHelp(snapshotOf({}), null, trans)).toMatch(/^The server reports nothing wrong\./);
  });
});
