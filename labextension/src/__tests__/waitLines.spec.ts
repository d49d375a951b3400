import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { PanelLayout, Widget } from '@lumino/widgets';

import { DEFAULTS, GPUShareSettings } from '../shell/settings';
import { parseState } from '../state';
import { STAYS_MS, WaitLines } from '../waitLines';
import { device, kernel, memory, state, waiter } from './support/states';

jest.mock('../waitLine', () => {
  const widgets = jest.requireActual<{ Widget: new () => Widget }>('@lumino/widgets');
  return {
    WaitLine: class extends widgets.Widget {
      tell(told: { kind: string }): void {
        this.node.textContent = told.kind;
      }
    }
  };
});

/** A notebook whose cells sent the messages `a` and `b`, in a page that shows nothing else. */
function notebook(): {
  cells: Widget[];
  /** Each ends the run of a cell. */
  ends: (() => void)[];
  contentHeader: Widget;
  panel: object;
  statusChanged: Signal<object, undefined>;
  kernel: { id: string; status: string };
} {
  const ends: (() => void)[] = [];
  const cells = ['a', 'b'].map(message => {
    const done = new Promise<void>(resolve => ends.push(resolve));
    const cell = Object.assign(new Widget(), {
      outputArea: { future: { done, msg: { header: { msg_id: message } } } }
    });
    const outputs = new Widget();
    outputs.addClass('jp-Cell-outputWrapper');
    const layout = new PanelLayout();
    layout.addWidget(outputs);
    cell.layout = layout;
    return cell;
  });
  const contentHeader = new Widget();
  const header = new PanelLayout();
  contentHeader.layout = header;
  const sessionContext = {};
  const statusChanged = new Signal<object, undefined>(sessionContext);
  const kernel = { id: 'k1', status: 'busy' };
  const panel: object = {
    content: { widgets: cells },
    contentHeader: {
      addWidget: (line: Widget) => {
        header.addWidget(line);
      }
    },
    disposed: new Signal({}),
    sessionContext: Object.assign(sessionContext, {
      kernelChanged: new Signal({}),
      session: { kernel },
      statusChanged
    })
  };
  return { cells, ends, contentHeader, panel, statusChanged, kernel };
}

describe('WaitLines', () => {
  const model = { problem: null as object | null, snapshot: null as object | null };
  const changed = new Signal<object, undefined>(model);
  let shown: ReturnType<typeof notebook>;
  let lines: WaitLines;
  let settings: GPUShareSettings;

  beforeEach(() => {
    jest.useFakeTimers({ now: 0 });
    model.problem = null;
    model.snapshot = null;
    shown = notebook();
    settings = new GPUShareSettings();
    const options = {
      settings,
      model: Object.assign(model, { changed }),
      tracker: {
        forEach: (visit: (panel: object) => void) => {
          visit(shown.panel);
        },
        widgetAdded: new Signal({})
      },
      trans: nullTranslator.load('jupyter_gpushare')
    };
    lines = new WaitLines(options as unknown as WaitLines.IOptions);
  });

  afterEach(() => {
    lines.dispose();
    jest.useRealTimers();
  });

  /** What the server says of the kernel now. */
  function tell(fields: object): void {
    const queue = [waiter({ tenant_id: 't1', waited_s: 0 })];
    const value = state({ devices: [device({ queue })], kernels: [kernel(fields)] });
    model.snapshot = { state: parseState(value), receivedAtMs: Date.now() };
    changed.emit(undefined);
  }

  function texts(): string[] {
    return [...shown.cells, shown.contentHeader].map(each => each.node.textContent);
  }

  it('runs no timer while nothing waits', () => {
    for (const name of ['idle', 'holds', 'unshared']) {
      tell({ state: name });
    }
    expect(jest.getTimerCount()).toBe(0);
    expect(texts()).toEqual(['', '', '']);
  });

  it('shows one line at the cell that waits, after a moment, before its outputs', () => {
    tell({ state: 'waits', cells: ['b'] });
    jest.advanceTimersByTime(DEFAULTS.waitLineAfterMs - 1);
    expect(texts()).toEqual(['', '', '']);
    jest.advanceTimersByTime(1);
    expect(texts()).toEqual(['', 'waits', '']);
    expect(shown.cells[1]?.node.lastElementChild?.className).toContain('jp-Cell-outputWrapper');
    expect(jest.getTimerCount()).toBe(0);
    tell({ state: 'waits', cells: ['a'] });
    expect(texts()).toEqual(['waits', '', '']);
    tell({ state: 'holds' });
    expect(texts()).toEqual(['', '', '']);
  });

  it('shows a line at each of several cells that run at once', () => {
    tell({ state: 'waits', cells: ['b'] });
    jest.advanceTimersByTime(DEFAULTS.waitLineAfterMs);
    const line = shown.cells[1]?.node.firstElementChild;
    tell({ state: 'waits', cells: ['b', 'a', 'of another page'] });
    expect(texts()).toEqual(['waits', 'waits', '']);
    expect(shown.cells[1]?.node.firstElementChild).toBe(line);
    tell({ state: 'waits', cells: ['a', 'of another page'] });
    expect(texts()).toEqual(['waits', '', '']);
    tell({ state: 'waits', cells: ['of another page'] });
    expect(texts()).toEqual(['', '', 'waits']);
    tell({ state: 'holds' });
    expect(texts()).toEqual(['', '', '']);
  });

  it('shows none for a wait that is of no cell, but of unused memory', () => {
    const trim = { number: 1, stage: 'runs' };
    tell({ state: 'waits', cells: [], trim });
    jest.advanceTimersByTime(DEFAULTS.waitLineAfterMs);
    expect(texts()).toEqual(['', '', '']);
    tell({ state: 'waits', cells: ['a'], trim });
    jest.advanceTimersByTime(DEFAULTS.waitLineAfterMs);
    expect(texts()).toEqual(['waits', '', '']);
    tell({ state: 'waits', cells: [], trim: { number: 1, stage: 'done' } });
    expect(texts()).toEqual(['', '', 'waits']);
  });

  it('says that memory comes back, where that takes a moment', () => {
    const parked = (bytes: number): object => ({
      state: 'holds',
      cells: ['a'],
      memory: [memory({ bytes_parked: bytes })]
    });
    tell(parked(8 * 1024 ** 3));
    expect(texts()).toEqual(['', '', '']);
    jest.advanceTimersByTime(DEFAULTS.waitLineAfterMs);
    expect(texts()).toEqual(['restores', '', '']);
    tell(parked(4 * 1024 ** 3));
    expect(texts()).toEqual(['restores', '', '']);
    tell(parked(0));
    expect(texts()).toEqual(['', '', '']);
    expect(jest.getTimerCount()).toBe(0);
  });

  it('shows nothing of a wait that is short', () => {
    tell({ state: 'waits', cells: ['a'] });
    tell({ state: 'holds' });
    jest.runAllTimers();
    expect(texts()).toEqual(['', '', '']);
  });

  it('stands above the notebook where the page does not know the cell', () => {
    tell({ state: 'waits', cells: ['of an earlier page'] });
    jest.advanceTimersByTime(DEFAULTS.waitLineAfterMs);
    expect(texts()).toEqual(['', '', 'waits']);
  });

  it('keeps its space when a paused cell goes on, until that ends, so that nothing jumps', async () => {
    const wait = { earliest_s: 1, latest_s: 2, used_s: 30, share: 0.5 };
    tell({ state: 'waits', cells: ['a'], wait });
    jest.advanceTimersByTime(DEFAULTS.waitLineAfterMs);
    const line = shown.cells[0]?.node.firstElementChild;
    tell({ state: 'holds' });
    jest.advanceTimersByTime(STAYS_MS - 1);
    expect(texts()).toEqual(['continues', '', '']);
    tell({ state: 'waits', cells: ['a'], wait });
    expect(texts()).toEqual(['waits', '', '']);
    expect(shown.cells[0]?.node.firstElementChild).toBe(line);
    for (const name of ['holds', 'idle']) {
      tell({ state: name });
      jest.advanceTimersByTime(STAYS_MS);
      expect(texts()).toEqual(['rests', '', '']);
    }
    expect(jest.getTimerCount()).toBe(0);
    expect(shown.cells[0]?.node.firstElementChild).toBe(line);
    shown.ends[1]?.();
    await Promise.resolve();
    expect(texts()).toEqual(['rests', '', '']);
    shown.ends[0]?.();
    await Promise.resolve();
    expect(texts()).toEqual(['', '', '']);
    tell({ state: 'waits', cells: ['b'] });
    jest.advanceTimersByTime(DEFAULTS.waitLineAfterMs);
    tell({ state: 'holds' });
    expect(texts()).toEqual(['', '', '']);
  });

  it('is not disturbed by a cell that has ended while the server says that it waits', async () => {
    tell({ state: 'waits', cells: ['a'], wait: { earliest_s: 1, latest_s: 2, used_s: 30 } });
    jest.advanceTimersByTime(DEFAULTS.waitLineAfterMs);
    const line = shown.cells[0]?.node.firstElementChild;
    shown.ends[0]?.();
    for (let turn = 0; turn < 5; turn += 1) {
      await Promise.resolve();
      tell({ state: 'waits', cells: ['a'], wait: { earliest_s: 1, latest_s: 2, used_s: 30 } });
      expect(shown.cells[0]?.node.firstElementChild).toBe(line);
    }
    tell({ state: 'holds' });
    await Promise.resolve();
    expect(texts()).toEqual(['', '', '']);
  });

  it('keeps its space above the notebook until its kernel is not busy', () => {
    const wait = { earliest_s: 1, latest_s: 2, used_s: 30, share: 0.5 };
    tell({ state: 'waits', cells: ['of an earlier page'], wait });
    jest.advanceTimersByTime(DEFAULTS.waitLineAfterMs);
    tell({ state: 'holds', memory: [memory({ bytes_parked: 1024 ** 3 })] });
    tell({ state: 'holds' });
    expect(texts()).toEqual(['', '', 'continues']);
    jest.advanceTimersByTime(STAYS_MS);
    expect(texts()).toEqual(['', '', 'rests']);
    shown.kernel.status = 'idle';
    shown.statusChanged.emit(undefined);
    expect(texts()).toEqual(['', '', '']);
  });

  it('follows the settings at once', async () => {
    tell({ state: 'waits', cells: ['a'] });
    await settings.set('waitLineAfterMs', 0);
    expect(texts()).toEqual(['waits', '', '']);
    await settings.set('showWaitLine', false);
    expect(texts()).toEqual(['', '', '']);
    expect(jest.getTimerCount()).toBe(0);
  });

  it('goes when the server does not answer any more', () => {
    tell({ state: 'waits', cells: ['a'] });
    jest.advanceTimersByTime(DEFAULTS.waitLineAfterMs);
    model.problem = { kind: 'unreachable' };
    changed.emit(undefined);
    expect(texts()).toEqual(['', '', '']);
  });
});
