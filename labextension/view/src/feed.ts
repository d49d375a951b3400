/** The answers of a query, as the service sends them; says when it cannot be reached. */

const PATIENCE_MS = 3000;
/** A connection that is made anew within this time was not lost. */
const RETRY_MS_MIN = 1000;
const RETRY_MS_MAX = 30000;

export type Connection = 'live' | 'lost' | 'refused';

export class Feed {
  /** `_probe` is an address that tells why there are no answers. */
  constructor(
    private readonly _probe: string,
    private readonly _onAnswer: (answer: unknown) => void,
    private readonly _onConnection: (connection: Connection, message: string) => void
  ) {}

  /** From now on what comes is of this address. */
  follow(url: string): void {
    this._close();
    this._url = url;
    this._retryMs = RETRY_MS_MIN;
    this._open();
  }

  private _open(): void {
    const source = new EventSource(this._url);
    this._source = source;
    source.onopen = () => {
      this._lives();
    };
    source.onmessage = (event: MessageEvent<string>) => {
      this._lives();
      this._onAnswer(JSON.parse(event.data));
    };
    source.onerror = () => {
      this._patience ??= setTimeout(() => {
        this._onConnection('lost', '');
      }, PATIENCE_MS);
      // The browser comes again by itself, unless the service has refused.
      if (source.readyState === EventSource.CLOSED) {
        void this._askWhy();
      }
    };
  }

  private _lives(): void {
    clearTimeout(this._patience);
    this._patience = undefined;
    this._retryMs = RETRY_MS_MIN;
    this._onConnection('live', '');
  }

  /** What an EventSource does not tell. */
  private async _askWhy(): Promise<void> {
    const url = this._url;
    let message = '';
    try {
      const answer = await fetch(this._probe, { redirect: 'manual' });
      const isOut = answer.type === 'opaqueredirect' || [401, 403].includes(answer.status);
      message = isOut ? 'Your login has ended. Load the page again.' : '';
    } catch {
      // It cannot be reached: it may come back.
    }
    if (url !== this._url) {
      return;
    }
    if (message) {
      clearTimeout(this._patience);
      this._onConnection('refused', message);
    }
    this._retry = setTimeout(() => {
      this._open();
    }, this._retryMs);
    this._retryMs = Math.min(RETRY_MS_MAX, this._retryMs * 2);
  }

  private _close(): void {
    this._source?.close();
    clearTimeout(this._retry);
    clearTimeout(this._patience);
    this._patience = undefined;
  }

  private _url = '';
  private _source: EventSource | undefined;
  private _retry: ReturnType<typeof setTimeout> | undefined;
  private _patience: ReturnType<typeof setTimeout> | undefined;
  private _retryMs = RETRY_MS_MIN;
}
