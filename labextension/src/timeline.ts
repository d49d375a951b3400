/**
 * What happened in the last 15 minutes, as `GET gpushare/api/timeline` tells it, and what is drawn of
 * it: pure functions. Times are in seconds before the answer, and never above 0.
 */

import type { TranslationBundle } from '@jupyterlab/translation';

import { formatBytes, formatDuration } from './format';
import { UNNAMED } from './state';

/** A tenant that had a turn. */
export interface IActor {
  readonly id: string;
  readonly name: string;
  readonly owner: string;
  /** It is mine. */
  readonly own: boolean;
}

export interface ITurn {
  readonly actor: IActor;
  readonly beginS: number;
  readonly endS: number;
  readonly goesOn: boolean;
  /** Of this time, in which it had the device; 1 at most. */
  readonly part: number;
}

/** So many waited from then on. */
export interface IWaitStep {
  readonly beginS: number;
  readonly waiting: number;
}

export interface ISample {
  readonly beginS: number;
  /** In percent; null where the device does not say. */
  readonly utilization: number | null;
  readonly bytesUsed: number;
}

export interface IDeviceTimeline {
  readonly turns: readonly ITurn[];
  readonly waits: readonly IWaitStep[];
  readonly samples: readonly ISample[];
}

export interface ITimeline {
  /** How far back it reaches; 0 where the scheduler keeps none. */
  readonly windowS: number;
  readonly sampleS: number;
  /** By the id of the device. */
  readonly devices: ReadonlyMap<string, IDeviceTimeline>;
}

const NOTHING: IDeviceTimeline = { turns: [], waits: [], samples: [] };

/** What is not as agreed is left out: a picture of the past is worth no error. */
export function parseTimeline(value: unknown): ITimeline {
  const timeline = record(value);
  const windowS = Math.max(0, amount(timeline.window_s));
  const actors = list(timeline.tenants).map(parseActor);
  return {
    windowS,
    sampleS: Math.max(1, amount(timeline.sample_s)),
    devices: new Map(
      list(timeline.devices).map(each => {
        const device = record(each);
        return [text(device.id), parseDevice(device, actors, windowS)];
      })
    )
  };
}

/** The device's part of it; empty where nothing is told of it. */
export function timelineOf(timeline: ITimeline, deviceId: string): IDeviceTimeline {
  return timeline.devices.get(deviceId) ?? NOTHING;
}

function parseActor(value: unknown): IActor {
  const actor = record(value);
  return {
    id: text(actor.id),
    name: text(actor.name),
    owner: text(actor.owner),
    own: actor.own === true
  };
}

function parseDevice(
  device: Record<string, unknown>,
  actors: readonly IActor[],
  windowS: number
): IDeviceTimeline {
  const ago = (value: unknown): number => Math.min(0, Math.max(-windowS, amount(value)));
  return {
    turns: list(device.turns)
      .map(record)
      .flatMap(turn => {
        const actor = actors[amount(turn.tenant)];
        const goesOn = turn.end_s === null || turn.end_s === undefined;
        const beginS = ago(turn.begin_s);
        const endS = goesOn ? 0 : Math.max(beginS, ago(turn.end_s));
        const part = typeof turn.part === 'number' ? Math.min(1, Math.max(0, turn.part)) : 1;
        return actor ? [{ actor, beginS, endS, goesOn, part }] : [];
      }),
    waits: list(device.waits)
      .map(record)
      .map(step => ({ beginS: ago(step.begin_s), waiting: Math.max(0, amount(step.waiting)) })),
    samples: list(device.samples)
      .map(record)
      .map(sample => ({
        beginS: ago(sample.begin_s),
        utilization: typeof sample.utilization === 'number' ? sample.utilization : null,
        bytesUsed: Math.max(0, amount(sample.bytes_used))
      }))
  };
}

/** A turn as a bar: where it lies in the window, in percent, and in which row. */
export interface IBar {
  readonly left: number;
  readonly width: number;
  /** From 0; tenants that had the device together are in rows below each other. */
  readonly row: number;
  readonly turn: ITurn;
}

export const ROWS_MAX = 4;
/** Bars that are less than this apart, in percent of the window, are drawn as one. */
const CLOSE_PERCENT = 0.2;

/** The turns as bars, and how many rows they take. */
export function barsOf(
  turns: readonly ITurn[],
  windowS: number
): { bars: readonly IBar[]; rows: number } {
  const ends: number[] = [];
  const bars: IBar[] = [];
  for (const turn of turns) {
    const left = percentOf(turn.beginS, windowS);
    const width = percentOf(turn.endS, windowS) - left;
    const free = ends.findIndex(end => end <= left + 1e-6);
    const row = free >= 0 ? free : Math.min(ends.length, ROWS_MAX - 1);
    ends[row] = Math.max(ends[row] ?? 0, left + width);
    const last = bars[bars.length - 1];
    if (last && last.row === row && mayBeOne(last, turn, left)) {
      const whole = { ...last.turn, endS: turn.endS, goesOn: turn.goesOn };
      bars[bars.length - 1] = { ...last, width: left + width - last.left, turn: whole };
    } else {
      bars.push({ left, width, row, turn });
    }
  }
  return { bars, rows: Math.max(1, ends.length) };
}

function mayBeOne(last: IBar, turn: ITurn, left: number): boolean {
  const isSame = last.turn.actor === turn.actor && Math.abs(last.turn.part - turn.part) < 0.1;
  return isSame && left - (last.left + last.width) < CLOSE_PERCENT;
}

/** A time in which somebody waited, and the most that did. */
export interface IWaitBar {
  readonly left: number;
  readonly width: number;
  readonly waiting: number;
}

export function waitBarsOf(waits: readonly IWaitStep[], windowS: number): readonly IWaitBar[] {
  return waits.flatMap((step, place) => {
    const left = percentOf(step.beginS, windowS);
    const right = percentOf(waits[place + 1]?.beginS ?? 0, windowS);
    return step.waiting > 0 && right > left
      ? [{ left, width: right - left, waiting: step.waiting }]
      : [];
  });
}

function percentOf(atS: number, windowS: number): number {
  return windowS > 0 ? (100 * (atS + windowS)) / windowS : 0;
}

/** Three columns of equal length: times, utilisation and memory, both in percent. */
export type PlotData = [number[], (number | null)[], (number | null)[]];

/** Samples as lines. Where none was taken for a while, the lines have a gap. */
export function plotDataOf(
  samples: readonly ISample[],
  sampleS: number,
  bytesTotal: number
): PlotData {
  const data: PlotData = [[], [], []];
  const add = (atS: number, utilization: number | null, memory: number | null): void => {
    data[0].push(atS);
    data[1].push(utilization);
    data[2].push(memory);
  };
  let beforeS: number | null = null;
  for (const { beginS, utilization, bytesUsed } of samples) {
    if (beforeS !== null && beginS - beforeS > GAP_SAMPLES * sampleS) {
      add(beforeS + sampleS, null, null);
    }
    beforeS = beginS;
    const memory = bytesTotal > 0 ? Math.min(100, (100 * bytesUsed) / bytesTotal) : null;
    add(beginS, utilization, memory);
  }
  return data;
}

const GAP_SAMPLES = 4;

/** The picture in words, for those who do not see it and those who want it short. */
export function summaryOf(
  timeline: IDeviceTimeline,
  windowS: number,
  trans: TranslationBundle
): string {
  const { samples, turns, waits } = timeline;
  const span = formatDuration(windowS, trans);
  if (turns.length === 0) {
    return trans.__('Nobody had this GPU in the last %1.', span);
  }
  const heldS = (own: boolean): number =>
    turns
      .filter(turn => turn.actor.own === own)
      .reduce((sum, turn) => sum + turn.part * (turn.endS - turn.beginS), 0);
  const sentences = [
    trans.__(
      'In the last %1 you had this GPU for %2, and others for %3.',
      span,
      formatDuration(heldS(true), trans),
      formatDuration(heldS(false), trans)
    )
  ];
  const waiting = Math.max(0, ...waits.map(step => step.waiting));
  if (waiting > 0) {
    sentences.push(trans.__('At most %1 waited at once.', waiting));
  }
  const busy = samples.flatMap(({ utilization }) => (utilization === null ? [] : [utilization]));
  if (busy.length > 0) {
    const mean = busy.reduce((sum, each) => sum + each, 0) / busy.length;
    sentences.push(trans.__('It was %1 % busy on average.', Math.round(mean)));
  }
  if (samples.length > 0) {
    const most = Math.max(...samples.map(sample => sample.bytesUsed));
    sentences.push(trans.__('At most %1 of its memory was in use.', formatBytes(most)));
  }
  return sentences.join(' ');
}

/** What a bar is, in words: whose turn, and when. */
export function formatTurn(turn: ITurn, trans: TranslationBundle): string {
  // A name may be written from right to left.
  const who = `\u2068${formatActor(turn.actor, trans)}\u2069`;
  const length = formatDuration(turn.endS - turn.beginS, trans);
  const when = turn.goesOn
    ? trans.__('%1: has it since %2', who, length)
    : trans.__('%1: had it for %2, until %3 ago', who, length, formatDuration(-turn.endS, trans));
  return turn.part < 0.95
    ? trans.__('%1 (%2 % of that time)', when, Math.max(1, Math.round(100 * turn.part)))
    : when;
}

/** With its user, where that is told and is another one. */
export function formatActor(actor: IActor, trans: TranslationBundle): string {
  const name = actor.name && actor.name !== UNNAMED ? actor.name : trans.__('another user');
  return actor.own || !actor.owner || actor.owner === actor.name
    ? name
    : `${name} · ${actor.owner}`;
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function amount(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) ? value : 0;
}
