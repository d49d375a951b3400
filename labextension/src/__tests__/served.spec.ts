import { nullTranslator } from '@jupyterlab/translation';

import type { ISnapshot } from '../model';
import {
  formatServed,
  isWorthTelling,
  lookAtWaits,
  type IServed,
  type WaitsSeen
} from '../shell/served';
import { DEFAULTS } from '../shell/settings';
import { parseState } from '../state';
import { device, holder, kernel, state, waiter } from './support/states';

const NOBODY: WaitsSeen = new Map();

/** Of one kernel that waits since `waitedS`, or has had the GPU for `heldS`. */
function seenAt(atS: number, name: string, fields: object = {}, s = 0): ISnapshot {
  const devices = [
    device({
      holder: name === 'holds' ? holder({ held_s: s }) : null,
      queue: name === 'waits' ? [waiter({ tenant_id: 't1', waited_s: s })] : []
    })
  ];
  const kernels = [kernel({ state: name, cells: ['cell'], ...fields })];
  return { state: parseState(state({ devices, kernels })), receivedAtMs: 1000 * atS };
}

function ended(...looks: ISnapshot[]): readonly IServed[] {
  let waits = NOBODY;
  let last: readonly IServed[] = [];
  for (const look of looks) {
    ({ waits, ended: last } = lookAtWaits(waits, look));
  }
  return last;
}

describe('a wait', () => {
  it('ends with a turn, and lasted until that began', () => {
    const [served] = ended(seenAt(100, 'waits', {}, 5), seenAt(220, 'holds', {}, 4));
    expect(served?.waitedS).toBe(121);
    expect(served && formatServed(served, nullTranslator.load('jupyter_gpushare'))).toBe(
      '\u2068train.ipynb\u2069 has the GPU after 2 min of waiting.'
    );
  });

  it('was no wait where the page came later', () => {
    expect(ended(seenAt(100, 'holds', {}, 4))).toEqual([]);
  });

  it('is counted from its beginning, also by a page that was loaded meanwhile', () => {
    const waiting = lookAtWaits(NOBODY, seenAt(100, 'waits', {}, 30)).waits.get('k1');
    expect(waiting).toEqual({ key: 'k1 cell', sinceMs: 70_000, isPaused: false });
  });

  it('of the next cell is another one', () => {
    const looks = [seenAt(100, 'waits', {}, 30), seenAt(110, 'waits', { cells: ['next'] }, 2)];
    expect(ended(...looks)).toEqual([]);
    const [served] = ended(...looks, seenAt(120, 'holds', { cells: ['next'] }));
    expect(served?.waitedS).toBe(12);
    expect(served?.wait.key).toBe('k1 next');
  });

  it('has the same name in each page, also where the server tells no cells', () => {
    const [one, other] = [100, 100.4].map(
      atS => lookAtWaits(NOBODY, seenAt(atS, 'waits', { cells: [] }, 30)).waits.get('k1')?.key
    );
    expect(one).toBe(other);
  });

  it('that ends without a turn says no more than that', () => {
    const [served] = ended(seenAt(100, 'waits'), seenAt(220, 'idle'));
    expect(served && formatServed(served, nullTranslator.load('jupyter_gpushare'))).toBe(
      '\u2068train.ipynb\u2069 no longer waits for the GPU.'
    );
  });

  it('ends in silence with its kernel', () => {
    const none = { ...seenAt(220, 'idle'), state: parseState(state()) };
    expect(ended(seenAt(100, 'waits'), none)).toEqual([]);
  });
});

describe('isWorthTelling', () => {
  const paused = { wait: { earliest_s: 1, latest_s: 2, used_s: 30, share: 0.5 } };

  function worth(settings: object, isAsked: boolean, ...looks: ISnapshot[]): boolean {
    const [served] = ended(...looks);
    return served !== undefined && isWorthTelling(served, isAsked, { ...DEFAULTS, ...settings });
  }

  it('is a wait as long as the setting says', () => {
    expect(worth({}, false, seenAt(100, 'waits'), seenAt(159, 'holds'))).toBe(false);
    expect(worth({}, false, seenAt(100, 'waits'), seenAt(160, 'holds'))).toBe(true);
    const sooner = { notifyAfterS: 5 };
    expect(worth(sooner, false, seenAt(100, 'waits'), seenAt(106, 'holds'))).toBe(true);
  });

  it('is any wait, or none, where the user says so', () => {
    const short = [seenAt(100, 'waits'), seenAt(101, 'holds')];
    const long = [seenAt(100, 'waits'), seenAt(999, 'holds')];
    expect(worth({ notifyWhenServed: 'always' }, false, ...short)).toBe(true);
    expect(worth({ notifyWhenServed: 'never' }, false, ...long)).toBe(false);
  });

  it('is what the user has asked for, whatever became of it', () => {
    const never = { notifyWhenServed: 'never' };
    expect(worth(never, true, seenAt(100, 'waits'), seenAt(101, 'holds'))).toBe(true);
    expect(worth(never, true, seenAt(100, 'waits'), seenAt(101, 'idle'))).toBe(true);
    expect(worth(never, true, seenAt(100, 'waits', paused), seenAt(101, 'holds'))).toBe(true);
  });

  it('is no wait that was interrupted, and no pause of a cell that goes on', () => {
    const always = { notifyWhenServed: 'always' };
    expect(worth(always, false, seenAt(100, 'waits'), seenAt(999, 'idle'))).toBe(false);
    expect(worth(always, false, seenAt(100, 'waits', paused), seenAt(999, 'holds'))).toBe(false);
  });
});
