import { EventManager, ServerConnection } from '@jupyterlab/services';
import type { Event } from '@jupyterlab/services';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';

/** Who wants to know what the server's event stream brings, and whether it is there. */
export interface IStreamListener {
  opened(): void;
  closed(): void;
  received(emission: Event.Emission): void;
}

/**
 * The event stream of the Jupyter server, which comes back by itself.
 *
 * The application's own event manager hides whether its socket is open, and the panel must know:
 * it polls exactly while the stream is down. So this is a second manager whose sockets tell.
 */
export function openEventStream(
  serverSettings: ServerConnection.ISettings,
  listener: IStreamListener
): IDisposable {
  const manager = new EventManager({
    serverSettings: {
      ...serverSettings,
      WebSocket: tellingSocket(serverSettings.WebSocket, listener)
    }
  });
  manager.stream.connect((_, emission) => {
    listener.received(emission);
  });
  return new DisposableDelegate(() => {
    manager.dispose();
  });
}

function tellingSocket(Socket: typeof WebSocket, listener: IStreamListener): typeof WebSocket {
  return class extends Socket {
    constructor(url: string | URL, protocols?: string | string[]) {
      super(url, protocols);
      this.addEventListener('open', () => {
        listener.opened();
      });
      this.addEventListener('close', () => {
        listener.closed();
      });
    }
  };
}
