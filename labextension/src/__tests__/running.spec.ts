import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';

import { GPURunning } from '../shell/running';
import { parseState } from '../state';
import { kernel, state } from './support/states';

describe('GPURunning', () => {
  const model = { snapshot: null as object | null, releaseTurn: jest.fn(), refresh: jest.fn() };
  const changed = new Signal<object, undefined>(model);
  const opened: string[] = [];
  let running: GPURunning;

  beforeEach(() => {
    model.snapshot = null;
    model.releaseTurn.mockClear();
    const options = {
      icon: 'gpu',
      releaseIcon: 'release',
      model: Object.assign(model, { changed }),
      onOpen: (path: string) => opened.push(path),
      trans: nullTranslator.load('jupyter_gpushare')
    };
    running = new GPURunning(options as unknown as GPURunning.IOptions);
  });

  function tell(...kernels: object[]): void {
    const told = parseState(state({ kernels: kernels.map(each => kernel(each)) }));
    model.snapshot = { state: told, receivedAtMs: 0 };
    changed.emit(undefined);
  }

  const MANY = [
    { kernel_id: 'a', path: 'a.ipynb', state: 'idle' },
    { kernel_id: 'b', path: 'b.ipynb', state: 'waits', position: 2 },
    { kernel_id: 'c', path: 'c.ipynb', state: 'waits', position: 1 },
    { kernel_id: 'd', path: 'd.ipynb', state: 'holds' },
    { kernel_id: 'e', path: 'e.ipynb', state: 'unshared', tenant_id: '' },
    { kernel_id: 'f', path: '', name: 'console', state: 'idle', hold_to_come_s: 60 }
  ];

  it('lists my kernels that share the GPU: who has it, who is next, who is idle', () => {
    expect(running.running()).toEqual([]);
    tell(...MANY);
    const shown = running.running().map(item => [item.label(), item.detail?.()]);
    expect(shown).toEqual([
      ['d.ipynb', 'has it'],
      ['c.ipynb', '1st in the queue'],
      ['b.ipynb', '2nd in the queue'],
      ['a.ipynb', 'idle'],
      ['console', 'idle']
    ]);
  });

  it('opens notebooks, and releases what there is to release', () => {
    tell(...MANY);
    const items = running.running();
    expect(items.map(item => item.open !== undefined)).toEqual([true, true, true, true, false]);
    expect(items.map(item => item.shutdown !== undefined)).toEqual([
      true,
      false,
      false,
      false,
      true
    ]);
    items[0]?.open?.();
    expect(opened).toEqual(['d.ipynb']);
    items[0]?.shutdown?.();
    expect(model.releaseTurn.mock.calls).toEqual([['d']]);
    running.shutdownAll();
    expect(model.releaseTurn.mock.calls).toEqual([['d'], ['d'], ['f']]);
  });

  it('is drawn again only when it would read differently', () => {
    let draws = 0;
    running.runningChanged.connect(() => (draws += 1));
    tell(...MANY);
    tell(...MANY);
    expect(draws).toBe(1);
    tell({ kernel_id: 'b', path: 'b.ipynb', state: 'holds' });
    expect(draws).toBe(2);
  });
});
