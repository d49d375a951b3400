import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

/** The server extension's HTTP interface. */
export interface IStateClient {
  /** The state, not parsed yet. @throws Unreachable, Refused, NotAllowed, NotInstalled */
  fetchState(): Promise<unknown>;

  /** Asks for it; what comes of it is a state. @throws Unreachable, Refused, NotAllowed, NotInstalled */
  perform(kernelId: string, action: IAction): Promise<void>;
}

/** What a user can ask for a kernel. */
export type IAction =
  /** Its turn goes to the next, and what keeps it by hand ends. */
  | { readonly kind: 'release' }
  /** Its turn, or its next one, is kept by hand for so long; 0 ends that. */
  | { readonly kind: 'hold'; readonly seconds: number }
  /** Its turn ends, and its memory leaves the device until its next turn. */
  | { readonly kind: 'evict' }
  /** What its frameworks keep unused leaves the device; the state tells what came of it. */
  | { readonly kind: 'trim' };

/** What the timelines need of it. */
export interface ITimelineClient {
  /** The last 15 minutes, not parsed yet. @throws Unreachable, Refused, NotAllowed, NotInstalled */
  fetchTimeline(): Promise<unknown>;
}

/** The Jupyter server did not answer. */
export class Unreachable extends Error {}

/** The Jupyter server answers, but has no such extension. */
export class NotInstalled extends Error {}

/** The server extension refused; the message is its own sentence. */
export class Refused extends Error {}

/** The Jupyter server itself lets this user do no such thing, or knows the user no longer. */
export class NotAllowed extends Error {}

export class StateClient implements IStateClient, ITimelineClient {
  constructor(options: StateClient.IOptions) {
    this._settings = options.serverSettings;
  }

  fetchState(): Promise<unknown> {
    return this._fetch('state');
  }

  fetchTimeline(): Promise<unknown> {
    return this._fetch('timeline');
  }

  private async _fetch(path: string): Promise<unknown> {
    const response = await this._request(path, 'GET');
    try {
      return (await response.json()) as unknown;
    } catch {
      // Some proxies answer for a server that is away, with a page and a success.
      throw new Unreachable('the answer is not JSON');
    }
  }

  async perform(kernelId: string, action: IAction): Promise<void> {
    const path = `kernels/${encodeURIComponent(kernelId)}/${action.kind}`;
    const body = action.kind === 'hold' ? JSON.stringify({ hold_s: action.seconds }) : undefined;
    await this._request(path, 'POST', body);
  }

  private async _request(path: string, method: 'GET' | 'POST', body?: string): Promise<Response> {
    const url = URLExt.join(this._settings.baseUrl, 'gpushare/api', path);
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(
        url,
        body === undefined ? { method } : { method, body },
        this._settings
      );
    } catch (error) {
      throw new Unreachable(String(error));
    }
    if (response.ok) {
      return response;
    }
    const sentence = await messageOf(response);
    if (response.status === 404 && sentence === '') {
      throw new NotInstalled(url);
    }
    if ((response.status === 401 || response.status === 403) && sentence === '') {
      throw new NotAllowed(url);
    }
    if (response.status >= 502 && response.status <= 504 && sentence === '') {
      throw new Unreachable(response.statusText);
    }
    throw new Refused(sentence || `${response.status} ${response.statusText}`);
  }

  private readonly _settings: ServerConnection.ISettings;
}

export namespace StateClient {
  export interface IOptions {
    readonly serverSettings: ServerConnection.ISettings;
  }
}

/** Our sentence in an error's body; empty when the answer is not from our extension. */
async function messageOf(response: Response): Promise<string> {
  try {
    const body = (await response.json()) as { message?: unknown } | null;
    const message = body?.message;
    // Jupyter's own "404: Not Found" has a message as well, which is the bare phrase.
    return typeof message === 'string' && message !== response.statusText ? message : '';
  } catch {
    return '';
  }
}
