import { nullTranslator } from '@jupyterlab/translation';

import {
  barsOf,
  formatTurn,
  parseTimeline,
  plotDataOf,
  ROWS_MAX,
  summaryOf,
  timelineOf,
  waitBarsOf,
  type ISample,
  type ITurn
} from '../timeline';
import { DEVICE_ID, timeline, turn } from './support/timelines';

const trans = nullTranslator.load('jupyter_gpushare');

function turnsOf(...turns: object[]): readonly ITurn[] {
  const parsed = parseTimeline(
    timeline({ devices: [{ id: DEVICE_ID, turns, waits: [], samples: [] }] })
  );
  return timelineOf(parsed, DEVICE_ID).turns;
}

function sample(beginS: number, utilization: number | null = 50): ISample {
  return { beginS, utilization, bytesUsed: 10 };
}

describe('parseTimeline', () => {
  it('reads turns with those who had them', () => {
    const { turns, waits, samples } = timelineOf(parseTimeline(timeline()), DEVICE_ID);
    expect(turns.map(each => [each.actor.name, each.beginS, each.endS, each.goesOn])).toEqual([
      ['train.ipynb', -900, -450, false],
      ['another user', -450, -225, false],
      ['train.ipynb', -60, 0, true]
    ]);
    expect([waits.length, samples.length]).toEqual([2, 2]);
  });

  it.each<[string, unknown]>([
    ['nothing', undefined],
    ['a text', 'gone'],
    ['lists of something else', { window_s: 'x', tenants: {}, devices: [null, 7, {}] }],
    ['an older scheduler', { window_s: 0, tenants: [], devices: [] }]
  ])('makes an empty timeline of %s', (_, value) => {
    const parsed = parseTimeline(value);
    expect(parsed.windowS).toBe(0);
    expect(timelineOf(parsed, DEVICE_ID)).toEqual({ turns: [], waits: [], samples: [] });
  });

  it('leaves out what it cannot read, and keeps the rest', () => {
    const [first, ...others] = turnsOf(
      turn(0, -2000, 50, { part: 7, later: 'unknown' }),
      turn(9, -10, -5),
      turn(0, Number.NaN, null)
    );
    expect(first).toMatchObject({ beginS: -900, endS: 0, part: 1 });
    expect(others).toMatchObject([{ beginS: 0, endS: 0, goesOn: true }]);
  });
});

describe('barsOf', () => {
  it('places turns in percent of the window', () => {
    const { bars, rows } = barsOf(turnsOf(turn(0, -900, -450), turn(1, -450, -225)), 900);
    expect(bars.map(({ left, row, width }) => [left, width, row])).toEqual([
      [0, 50, 0],
      [50, 25, 0]
    ]);
    expect(rows).toBe(1);
  });

  it('puts tenants that had the device together into rows', () => {
    const { bars, rows } = barsOf(
      turnsOf(turn(0, -900, null), turn(1, -800, -700), turn(1, -600, -500)),
      900
    );
    expect(bars.map(({ row }) => row)).toEqual([0, 1, 1]);
    expect(rows).toBe(2);
  });

  it('has a bound for the rows', () => {
    const turns = turnsOf(...Array.from({ length: 50 }, (_, place) => turn(0, place - 900, null)));
    const { bars, rows } = barsOf(turns, 900);
    expect(rows).toBe(ROWS_MAX);
    expect(Math.max(...bars.map(({ row }) => row))).toBe(ROWS_MAX - 1);
  });

  it('draws turns of a tenant as one where nobody could tell them apart', () => {
    const { bars } = barsOf(
      turnsOf(turn(0, -900, -800), turn(0, -799, -700), turn(0, -600, -500)),
      900
    );
    expect(bars.map(({ turn: each }) => [each.beginS, each.endS])).toEqual([
      [-900, -700],
      [-600, -500]
    ]);
  });
});

describe('waitBarsOf', () => {
  it('has a bar for each time in which somebody waited', () => {
    const steps = [
      { beginS: -900, waiting: 0 },
      { beginS: -450, waiting: 2 },
      { beginS: -225, waiting: 0 },
      { beginS: -90, waiting: 1 }
    ];
    expect(waitBarsOf(steps, 900)).toEqual([
      { left: 50, width: 25, waiting: 2 },
      { left: 90, width: 10, waiting: 1 }
    ]);
  });
});

describe('plotDataOf', () => {
  it('has use and memory in percent', () => {
    expect(plotDataOf([sample(-4), sample(-2, null)], 2, 40)).toEqual([
      [-4, -2],
      [50, null],
      [25, 25]
    ]);
  });

  it('has a gap where nothing was measured', () => {
    expect(plotDataOf([sample(-100), sample(-50)], 2, 0)).toEqual([
      [-100, -98, -50],
      [50, null, 50],
      [null, null, null]
    ]);
  });
});

describe('summaryOf', () => {
  it('says in words what is drawn', () => {
    const here = timelineOf(parseTimeline(timeline()), DEVICE_ID);
    expect(summaryOf(here, 900, trans)).toBe(
      'In the last 15 min you had this GPU for 8 min, and others for 3 min. ' +
        'At most 2 waited at once. It was 50 % busy on average. ' +
        'At most 2.0 GiB of its memory was in use.'
    );
  });

  it('says what is known of a device that does not tell its use', () => {
    const here = { turns: turnsOf(turn(1, -60, -30, { part: 0.5 })), waits: [], samples: [] };
    expect(summaryOf(here, 900, trans)).toBe(
      'In the last 15 min you had this GPU for 0 s, and others for 15 s.'
    );
  });

  it('says that nobody had the device', () => {
    const nothing = { turns: [], waits: [], samples: [] };
    expect(summaryOf(nothing, 900, trans)).toBe('Nobody had this GPU in the last 15 min.');
  });
});

describe('formatTurn', () => {
  it.each<[object, string]>([
    [turn(0, -90, null), '\u2068train.ipynb\u2069: has it since 1 min'],
    [turn(1, -90, -30), '\u2068another user\u2069: had it for 1 min, until 30 s ago'],
    [
      turn(0, -90, -30, { part: 0.25 }),
      '\u2068train.ipynb\u2069: had it for 1 min, until 30 s ago (25 % of that time)'
    ]
  ])('tells whose it is and when', (value, words) => {
    const [only] = turnsOf(value);
    expect(only && formatTurn(only, trans)).toBe(words);
  });
});
