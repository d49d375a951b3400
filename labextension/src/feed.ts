import type { Event } from '@jupyterlab/services';
import type { IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { Signal, type ISignal } from '@lumino/signaling';

import type { IStateClient } from './client';
import type { IStreamListener } from './eventStream';
import { STATE_SCHEMA_ID } from './tokens';

/**
 * Brings the server's state, newest last: by events while the stream is up; by asking once each
 * time that it opens (what happened before was not told), and again and again while it is down.
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
      void this._poll.stop();
      void this.refresh();
    }
  }

  closed(): void {
    if (!this._isDisposed) {
      void this._poll.start();
    }
  }

  received(emission: Event.Emission): void {
    if (this._isDisposed || emission.schema_id !== STATE_SCHEMA_ID) {
      return;
    }
    this._newest = ++this._asked;
    this._arrived.emit(stateOf(emission));
  }

  /** Rejects when the server gave no state, so that the poll asks less often. */
  private async _ask(): Promise<void> {
    const number = ++this._asked;
    try {
      const state = await this._client.fetchState();
      // An event, or the answer to a later question, that came first is newer than this answer.
      if (!this._isDisposed && number > this._newest) {
        this._newest = number;
        this._arrived.emit(state);
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
  /** Questions and events are numbered in the order in which they began. */
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

/** The state inside an event: a text, so that the event's schema need not repeat its form. */
function stateOf(emission: Event.Emission): unknown {
  const { version, state_json: text } = emission;
  if (typeof text !== 'string') {
    return { version };
  }
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
