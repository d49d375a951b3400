import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { act } from 'react';
import { createRoot, type Root } from 'react-dom/client';

import { NotInstalled, Unreachable } from '../client';
import { parseState } from '../state';
import type { PlotData } from '../timeline';
import { TimelineContext, TimelineView } from '../timelineView';
import { Timelines } from '../timelines';
import { settled } from './support/fakes';
import { state } from './support/states';
import { timeline } from './support/timelines';

const drawn: PlotData[] = [];
let plots = 0;
let mayDraw = true;

// uPlot needs a canvas, which jsdom does not have.
jest.mock('../timelinePlot', () => ({
  openPlot: (_: HTMLElement, data: PlotData) => {
    if (!mayDraw) {
      throw new RangeError('Invalid language tag');
    }
    drawn.push(data);
    plots += 1;
    return {
      setData: (next: PlotData) => drawn.push(next),
      dispose: () => {
        plots -= 1;
      }
    };
  }
}));

/** Says that everything is on the screen, or that nothing is. */
class FakeObserver {
  static isIntersecting = true;
  static readonly all = new Set<FakeObserver>();
  constructor(readonly tell: (entries: { isIntersecting: boolean }[]) => void) {
    FakeObserver.all.add(this);
  }
  observe(): void {
    this.tell([{ isIntersecting: FakeObserver.isIntersecting }]);
  }
  disconnect(): void {
    FakeObserver.all.delete(this);
  }
}

describe('TimelineView', () => {
  const trans = nullTranslator.load('jupyter_gpushare');
  let page: HTMLElement;
  let root: Root;
  let asked: number;
  let answer: () => Promise<unknown>;
  let timelines: Timelines;

  beforeEach(() => {
    jest.useFakeTimers();
    Object.assign(globalThis, { IntersectionObserver: FakeObserver });
    FakeObserver.isIntersecting = true;
    localStorage.clear();
    mayDraw = true;
    drawn.length = 0;
    asked = 0;
    answer = () => Promise.resolve(timeline());
    const fetchTimeline = (): Promise<unknown> => {
      asked += 1;
      return answer();
    };
    const news = new Signal<object, undefined>({});
    timelines = new Timelines({ client: { fetchTimeline }, news, standby: 'never' });
    page = document.body.appendChild(document.createElement('div'));
    root = createRoot(page);
  });

  afterEach(() => {
    act(() => {
      root.unmount();
    });
    timelines.dispose();
    page.remove();
    jest.useRealTimers();
  });

  async function show(): Promise<void> {
    const [device] = parseState(state()).devices;
    act(() => {
      if (device) {
        root.render(
          <TimelineContext.Provider value={timelines}>
            <TimelineView device={device} trans={trans} />
          </TimelineContext.Provider>
        );
      }
    });
    await settle();
  }

  async function toggle(isOpen: boolean): Promise<void> {
    const section = page.querySelector('details');
    act(() => {
      if (section) {
        section.open = isOpen;
        section.dispatchEvent(new Event('toggle'));
      }
    });
    await settle();
  }

  /** Lets effects, the poll's timer, the answer and the loading of the lines take place. */
  async function settle(): Promise<void> {
    for (let round = 0; round < 3; round += 1) {
      await act(async () => {
        await settled();
        jest.advanceTimersByTime(50);
        await settled();
      });
    }
  }

  it('is closed at first, and asks for nothing then', async () => {
    await show();
    expect(page.textContent).toBe('Last 15 minutes');
    expect([asked, plots]).toEqual([0, 0]);
  });

  it('shows turns, waits, lines and a sentence once it is opened', async () => {
    await show();
    await toggle(true);
    expect(page.querySelectorAll('.jp-gpushare-TurnBar.jp-mod-mine')).toHaveLength(2);
    expect(page.querySelectorAll('.jp-gpushare-TurnBar')).toHaveLength(3);
    expect(page.querySelector('.jp-gpushare-WaitBar')?.getAttribute('title')).toBe('2 waited');
    expect(page.querySelector('.jp-gpushare-TurnName')?.textContent).toBe('train.ipynb');
    expect(page.textContent).toContain('you had this GPU for 8 min, and others for 3 min.');
    expect(drawn[drawn.length - 1]?.[1]).toEqual([80, 20]);
    expect(plots).toBe(1);
  });

  it('hides the picture from screen readers, which have the sentence', async () => {
    await show();
    await toggle(true);
    const summary = page.querySelector('.jp-gpushare-TimelineSummary');
    expect(summary?.closest('[aria-hidden]')).toBeNull();
    expect(page.querySelector('.jp-gpushare-Lane')?.closest('[aria-hidden="true"]')).not.toBeNull();
  });

  it('forgets its picture when it is closed, and asks no more', async () => {
    await show();
    await toggle(true);
    await toggle(false);
    expect(page.textContent).toBe('Last 15 minutes');
    expect([plots, FakeObserver.all.size]).toEqual([0, 0]);
  });

  it('is as it was left when the page is loaded again', async () => {
    await show();
    await toggle(true);
    act(() => {
      root.unmount();
    });
    root = createRoot(page);
    await show();
    expect(page.querySelector('details')?.open).toBe(true);
    await toggle(false);
    expect(localStorage).toHaveLength(0);
  });

  it('asks for nothing while it is not on the screen', async () => {
    FakeObserver.isIntersecting = false;
    await show();
    await toggle(true);
    expect(asked).toBe(0);
    act(() => {
      FakeObserver.all.forEach(observer => {
        observer.tell([{ isIntersecting: true }]);
      });
    });
    await settle();
    expect(asked).toBe(1);
  });

  it.each<[string, () => Promise<unknown>, string]>([
    ['an older scheduler', () => Promise.resolve({ window_s: 0 }), 'keeps no timeline'],
    ['an older server', () => Promise.reject(new NotInstalled('x')), 'keeps no timeline'],
    ['no answer', () => Promise.reject(new Unreachable('gone')), 'does not answer'],
    ['an idle device', () => Promise.resolve(timeline({ devices: [] })), 'Nobody had this GPU']
  ])('says in a sentence that there is nothing to show: %s', async (_, told, words) => {
    answer = told;
    await show();
    await toggle(true);
    expect(page.textContent).toContain(words);
    expect(plots).toBe(0);
  });

  it('shows turns and the sentence where lines cannot be drawn', async () => {
    mayDraw = false;
    await show();
    await toggle(true);
    expect(page.querySelectorAll('.jp-gpushare-TurnBar')).toHaveLength(3);
    expect(page.textContent).toContain('The lines cannot be drawn here.');
    expect(page.textContent).toContain('you had this GPU for 8 min');
  });

  it('shows names as text', async () => {
    const name = '<img src=x onerror=alert(1)>';
    const tenants = [{ id: 't', name, owner: '', own: false }];
    answer = () => Promise.resolve(timeline({ tenants }));
    await show();
    await toggle(true);
    expect(page.querySelector('img')).toBeNull();
    expect(page.querySelector('.jp-gpushare-TurnName')?.textContent).toBe(name);
  });
});
