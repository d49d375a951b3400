import type { Event } from '@jupyterlab/services';
import type { IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { Signal, type ISignal } from '@lumino/signaling';

import type { IStateClient } from './client';
import type { IStreamListener } from './eventStream';
import { CHANGED_SCHEMA_ID } from './tokens';

/**
 * Brings the server's state, newest last. While the stream is up it asks when an event tells of a
 * change, and once each time that the stream opens (what happened before was not told). While the
 * stream is down, or the server does not answer, it asks again and again.
 */
export class StateFeed implements IDisposable, IStreamListener {
  constructor(options: StateFeed.IOptions) {
    this._client = options.client;
    this._poll = new Poll({
      auto: false,
      name: '@jupyter-gpushare/labextension:feed',
      factory: () => this._ask(),
      frequency: { interval: options.pollMs ?? StateFeed.POLL_MS, backoff: true },
      standby: options.standby ?? 'when-hidden'
    });
    void this._poll.start();
    this._stream = options.openStream(this);
  }

  /** A state, not parsed yet. */
  get arrived(): ISignal<this, unknown> {
    return this._arrived;
  }

  /** Asking failed; the state that came before may be out of date. */
  get failed(): ISignal<this, unknown> {
    return this._failed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this._stream.dispose();
    this._poll.dispose();
    Signal.clearData(this);
  }

  /** Asks once, whatever the stream does. */
  async refresh(): Promise<void> {
    await this._ask().catch(() => undefined);
  }

  opened(): void {
    if (!this._isDisposed) {
      this._isOpen = true;
      void this._poll.stop();
      this._changed();
    }
  }

  closed(): void {
    if (!this._isDisposed) {
      this._isOpen = false;
      void this._poll.start();
    }
  }

  received(emission: Event.Emission): void {
    if (!this._isDisposed && emission.schema_id === CHANGED_SCHEMA_ID) {
      this._changed();
    }
  }

  /** Asks now, or once more after the question that is under way. */
  private _changed(): void {
    this._isBehind = true;
    if (!this._isFollowing) {
      void this._follow();
    }
  }

  private async _follow(): Promise<void> {
    this._isFollowing = true;
    while (this._isBehind && !this._isDisposed) {
      this._isBehind = false;
      try {
        await this._ask();
      } catch {
        void this._poll.start();
      }
    }
    this._isFollowing = false;
  }

  /** Rejects when the server gave no state, so that the poll asks less often. */
  private async _ask(): Promise<void> {
    const number = ++this._asked;
    try {
      const state = await this._client.fetchState();
      // The answer to a later question that came first is newer than this answer.
      if (!this._isDisposed && number > this._newest) {
        this._newest = number;
        this._arrived.emit(state);
      }
      // The stream tells of what changes from now on.
      if (this._isOpen && !this._isDisposed) {
        void this._poll.stop();
      }
    } catch (error) {
      if (!this._isDisposed && number > this._newest) {
        this._failed.emit(error);
      }
      throw error;
    }
  }

  private readonly _client: IStateClient;
  private readonly _poll: Poll;
  private readonly _stream: IDisposable;
  private readonly _arrived = new Signal<this, unknown>(this);
  private readonly _failed = new Signal<this, unknown>(this);
  /** The stream is up. */
  private _isOpen = false;
  /** Something has changed since the last question. */
  private _isBehind = false;
  private _isFollowing = false;
  /** Questions are numbered in the order in which they began. */
  private _asked = 0;
  private _newest = 0;
  private _isDisposed = false;
}

export namespace StateFeed {
  /** How often the state is asked for while the stream is down. */
  export const POLL_MS = 2000;

  export interface IOptions {
    readonly client: IStateClient;
    readonly openStream: (listener: IStreamListener) => IDisposable;
    readonly pollMs?: number;
    readonly standby?: Poll.Standby;
  }
}
