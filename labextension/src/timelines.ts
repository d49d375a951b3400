import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { Signal, type ISignal } from '@lumino/signaling';

import { NotInstalled, type ITimelineClient } from './client';
import { parseTimeline, type ITimeline } from './timeline';

/**
 * The timelines of all devices. They are asked for only while somebody looks at one: when the state
 * has changed, and every few seconds. Otherwise nothing runs here.
 */
export class Timelines implements IDisposable {
  constructor(options: Timelines.IOptions) {
    this._client = options.client;
    this._clockMs = options.clockMs ?? Date.now;
    this._news = options.news;
    this._poll = new Poll({
      auto: false,
      name: '@jupyter-gpushare/labextension:timelines',
      factory: () => this._ask(),
      frequency: { interval: Timelines.POLL_MS, backoff: true },
      standby: options.standby ?? 'when-hidden'
    });
  }

  get changed(): ISignal<this, undefined> {
    return this._changed;
  }

  /** Null until somebody has looked. */
  get timeline(): ITimeline | null {
    return this._timeline;
  }

  /** The last question was not answered; the timeline may be out of date. */
  get isFailing(): boolean {
    return this._isFailing;
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  dispose(): void {
    if (!this.isDisposed) {
      this._news.disconnect(this._onNews, this);
      this._poll.dispose();
      Signal.clearData(this);
    }
  }

  /** Somebody looks, until what is returned is disposed. */
  watch(): IDisposable {
    this._watchers += 1;
    if (this._watchers === 1 && !this.isDisposed) {
      this._news.connect(this._onNews, this);
      void this._poll.start();
    }
    return new DisposableDelegate(() => {
      this._watchers -= 1;
      if (this._watchers === 0 && !this.isDisposed) {
        this._news.disconnect(this._onNews, this);
        void this._poll.stop();
      }
    });
  }

  private _onNews(): void {
    if (this._clockMs() - this._askedAtMs >= Timelines.NEWS_MS) {
      void this._poll.refresh();
    }
  }

  private async _ask(): Promise<void> {
    this._askedAtMs = this._clockMs();
    try {
      this._timeline = parseTimeline(await this._client.fetchTimeline());
      this._isFailing = false;
    } catch (error) {
      // A server of an older version has no such route, and is as good as a scheduler that keeps none.
      this._isFailing = !(error instanceof NotInstalled);
      if (this._isFailing) {
        throw error;
      }
      this._timeline = parseTimeline({});
    } finally {
      if (!this.isDisposed) {
        this._changed.emit(undefined);
      }
    }
  }

  private readonly _client: ITimelineClient;
  private readonly _clockMs: () => number;
  private readonly _news: ISignal<unknown, unknown>;
  private readonly _poll: Poll;
  private readonly _changed = new Signal<this, undefined>(this);
  private _timeline: ITimeline | null = null;
  private _isFailing = false;
  private _watchers = 0;
  private _askedAtMs = -Infinity;
}

export namespace Timelines {
  /** How often it is asked for while somebody looks and nothing is told. */
  export const POLL_MS = 5000;
  /** How often at most it is asked for when something is told. */
  export const NEWS_MS = 2000;

  export interface IOptions {
    readonly client: ITimelineClient;
    /** Tells that something may have happened. */
    readonly news: ISignal<unknown, unknown>;
    readonly clockMs?: () => number;
    readonly standby?: Poll.Standby;
  }
}
