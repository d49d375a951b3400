import { Signal } from '@lumino/signaling';

import { Claims } from '../shell/claims';
import { Notices } from '../shell/notices';
import type { IServed } from '../shell/served';
import { GPUShareSettings } from '../shell/settings';
import { parseState } from '../state';
import { kernel, state } from './support/states';

/** What one browser keeps. */
class FakeStorage {
  private readonly _kept = new Map<string, string>();

  getItem(name: string): string | null {
    return this._kept.get(name) ?? null;
  }

  setItem(name: string, value: string): void {
    this._kept.set(name, value);
  }
}

describe('Claims', () => {
  it('are taken once in all pages of a browser', () => {
    const storage = new FakeStorage();
    expect(new Claims(() => storage).take('a')).toBe(true);
    expect(new Claims(() => storage).take('a')).toBe(false);
    expect(new Claims(() => storage).take('b')).toBe(true);
  });

  it('do not keep a browser from telling that keeps nothing, or something strange', () => {
    const none = new Claims(() => {
      throw new Error('SecurityError');
    });
    expect([none.take('a'), none.take('a')]).toEqual([true, true]);
    for (const kept of ['{', '{"a": 1}', '[3]']) {
      const storage = new FakeStorage();
      storage.setItem('jupyter-gpushare:told', kept);
      expect(new Claims(() => storage).take('a')).toBe(true);
    }
  });
});

/** A page of the browser, which tells what it is told to tell. */
function pageOf(storage: FakeStorage): {
  model: { problem: object | null; snapshot: object | null };
  notices: Notices;
  sight: { isHidden: boolean; isInView: boolean };
  tell: (name: string | null) => void;
  told: IServed[];
} {
  const model = { problem: null as object | null, snapshot: null as object | null };
  const changed = new Signal<object, undefined>(model);
  const settings = new GPUShareSettings();
  const sight = { isHidden: false, isInView: false };
  const told: IServed[] = [];
  const options = {
    claims: new Claims(() => storage),
    isHidden: () => sight.isHidden,
    isInView: () => sight.isInView,
    model: Object.assign(model, { changed }),
    settings,
    tell: (served: IServed) => told.push(served)
  };
  const notices = new Notices(options as unknown as Notices.IOptions);
  void settings.set('notifyWhenServed', 'always');
  const tell = (name: string | null): void => {
    const kernels = name === null ? [] : [kernel({ state: name, cells: ['cell'] })];
    model.snapshot = { state: parseState(state({ kernels })), receivedAtMs: Date.now() };
    changed.emit(undefined);
  };
  return { model, notices, sight, tell, told };
}

describe('Notices', () => {
  let storage: FakeStorage;
  let page: ReturnType<typeof pageOf>;

  beforeEach(() => {
    jest.useFakeTimers({ now: 0 });
    storage = new FakeStorage();
    page = pageOf(storage);
  });

  afterEach(() => {
    page.notices.dispose();
    jest.useRealTimers();
  });

  it('tell once that a wait has ended, and run no timer', () => {
    page.tell('waits');
    expect(jest.getTimerCount()).toBe(0);
    page.tell('holds');
    page.tell('holds');
    expect(page.told.length).toBe(1);
    expect(jest.getTimerCount()).toBe(0);
  });

  it('tell nobody who has the notebook in view', () => {
    page.sight.isInView = true;
    page.tell('waits');
    page.tell('holds');
    expect(page.told).toEqual([]);
  });

  it('tell in one page of a browser: one that can be seen before one that is hidden', () => {
    const hidden = pageOf(storage);
    hidden.sight.isHidden = true;
    hidden.tell('waits');
    page.tell('waits');
    hidden.tell('holds');
    page.tell('holds');
    jest.runAllTimers();
    expect([page.told.length, hidden.told.length]).toEqual([1, 0]);
  });

  it('tell nothing in a hidden page where another one shows the notebook', () => {
    const hidden = pageOf(storage);
    hidden.sight.isHidden = true;
    page.sight.isInView = true;
    hidden.tell('waits');
    page.tell('waits');
    hidden.tell('holds');
    page.tell('holds');
    jest.runAllTimers();
    expect([page.told.length, hidden.told.length]).toEqual([0, 0]);
  });

  it('tell in a hidden page where there is no other', () => {
    page.sight.isHidden = true;
    page.tell('waits');
    page.tell('holds');
    expect(page.told).toEqual([]);
    jest.runAllTimers();
    expect(page.told.length).toBe(1);
    expect(jest.getTimerCount()).toBe(0);
  });

  it('tell of a wait for which somebody asked, once, and of none that they took back', () => {
    page.tell('idle');
    page.notices.toggle('k1');
    expect(page.notices.isAsked('k1')).toBe(false);
    page.tell('waits');
    page.notices.toggle('k1');
    expect(page.notices.isAsked('k1')).toBe(true);
    page.tell('idle');
    expect(page.notices.isAsked('k1')).toBe(false);
    expect(page.told.map(served => served.kernel.state)).toEqual(['idle']);
    const other = pageOf(new FakeStorage());
    other.tell('waits');
    other.notices.toggle('k1');
    other.notices.toggle('k1');
    other.tell('idle');
    expect(other.told).toEqual([]);
  });

  it('take no lost connection for the end of a wait', () => {
    page.tell('waits');
    page.model.problem = { kind: 'unreachable' };
    page.tell('idle');
    page.model.problem = null;
    page.tell('waits');
    page.tell('holds');
    expect(page.told.length).toBe(1);
  });
});
