import { Signal } from '@lumino/signaling';

import { Unreachable } from '../client';
import { Timelines } from '../timelines';
import { settled } from './support/fakes';
import { timeline } from './support/timelines';

describe('Timelines', () => {
  const news = new Signal<object, undefined>({});
  let asked: number;
  let answer: () => Promise<unknown>;
  let timelines: Timelines;

  beforeEach(() => {
    jest.useFakeTimers();
    asked = 0;
    answer = () => Promise.resolve(timeline());
    const fetchTimeline = (): Promise<unknown> => {
      asked += 1;
      return answer();
    };
    timelines = new Timelines({ client: { fetchTimeline }, news, standby: 'never' });
  });

  afterEach(() => {
    timelines.dispose();
    jest.useRealTimers();
  });

  async function advance(ms: number): Promise<void> {
    await settled();
    for (let passed = 0; passed <= ms; passed += 500) {
      jest.advanceTimersByTime(Math.min(500, ms));
      await settled();
    }
  }

  it('asks nothing while nobody looks', async () => {
    news.emit(undefined);
    await advance(60_000);
    expect([asked, jest.getTimerCount()]).toEqual([0, 0]);
  });

  it('asks at once and every few seconds while somebody looks, and then no more', async () => {
    const [one, another] = [timelines.watch(), timelines.watch()];
    await advance(0);
    expect(asked).toBe(1);
    expect(timelines.timeline?.windowS).toBe(900);
    await advance(4 * Timelines.POLL_MS);
    one.dispose();
    one.dispose();
    const before = asked;
    expect(before).toBeGreaterThanOrEqual(4);
    await advance(Timelines.POLL_MS);
    expect(asked).toBeGreaterThan(before);
    another.dispose();
    const after = asked;
    await advance(60_000);
    news.emit(undefined);
    await advance(60_000);
    expect(asked).toBe(after);
  });

  it('asks soon when there is news, and not more often than it should', async () => {
    timelines.watch();
    await advance(Timelines.NEWS_MS);
    const before = asked;
    for (let count = 0; count < 100; count += 1) {
      news.emit(undefined);
      await settled();
    }
    await advance(0);
    expect(asked).toBe(before + 1);
  });

  it('keeps the last timeline while the server does not answer', async () => {
    timelines.watch();
    await advance(0);
    answer = () => Promise.reject(new Unreachable('gone'));
    await advance(2 * Timelines.POLL_MS);
    expect([timelines.isFailing, timelines.timeline?.windowS]).toEqual([true, 900]);
    answer = () => Promise.resolve(timeline({ window_s: 600 }));
    await advance(60_000);
    expect([timelines.isFailing, timelines.timeline?.windowS]).toEqual([false, 600]);
  });

  it('tells nothing after its end', async () => {
    let told = 0;
    timelines.changed.connect(() => (told += 1));
    const watching = timelines.watch();
    timelines.dispose();
    timelines.dispose();
    watching.dispose();
    await advance(60_000);
    expect(told).toBe(0);
  });
});
