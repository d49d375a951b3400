import { ServerConnection } from '@jupyterlab/services';

import { NotAllowed, NotInstalled, Refused, StateClient, Unreachable } from '../client';

interface IAnswer {
  readonly status: number;
  readonly body?: unknown;
}

/** A client of a server that always gives this answer, and the requests that it got. */
function clientOf(answer: IAnswer): { client: StateClient; requests: string[] } {
  const requests: string[] = [];
  const serverSettings = ServerConnection.makeSettings({ baseUrl: 'http://host/user/a%20b/' });
  jest.spyOn(ServerConnection, 'makeRequest').mockImplementation((url, init) => {
    const body = typeof init.body === 'string' ? ` ${init.body}` : '';
    requests.push(`${String(init.method)} ${url}${body}`);
    return Promise.resolve({
      json: () =>
        'body' in answer
          ? Promise.resolve(answer.body)
          : Promise.reject(new SyntaxError('no JSON')),
      ok: answer.status < 400,
      status: answer.status,
      statusText: answer.status === 404 ? 'Not Found' : 'Some Error'
    } as Response);
  });
  return { client: new StateClient({ serverSettings }), requests };
}

describe('StateClient', () => {
  it('asks below the base of the server', async () => {
    const { client, requests } = clientOf({ status: 200, body: { version: 1 } });
    await expect(client.fetchState()).resolves.toEqual({ version: 1 });
    await client.fetchTimeline();
    await client.perform('a/b', { kind: 'release' });
    await client.perform('k', { kind: 'hold', seconds: 60 });
    await client.perform('k', { kind: 'evict' });
    expect(requests).toEqual([
      'GET http://host/user/a%20b/gpushare/api/state',
      'GET http://host/user/a%20b/gpushare/api/timeline',
      'POST http://host/user/a%20b/gpushare/api/kernels/a%2Fb/release',
      'POST http://host/user/a%20b/gpushare/api/kernels/k/hold {"hold_s":60}',
      'POST http://host/user/a%20b/gpushare/api/kernels/k/evict'
    ]);
  });

  it('passes on the sentence of a refusal', async () => {
    const { client } = clientOf({ status: 409, body: { message: 'It does not hold. Wait.' } });
    await expect(client.perform('k', { kind: 'release' })).rejects.toEqual(
      new Refused('It does not hold. Wait.')
    );
  });

  it.each<[string, IAnswer]>([
    ['a bare 404', { status: 404 }],
    ["Jupyter's own 404", { status: 404, body: { message: 'Not Found' } }]
  ])('knows from %s that the extension is not there', async (_, answer) => {
    await expect(clientOf(answer).client.fetchState()).rejects.toBeInstanceOf(NotInstalled);
  });

  it.each<[string, IAnswer]>([
    ['a page in place of an answer', { status: 200 }],
    ['a bad gateway', { status: 502 }]
  ])('takes %s for a server that is away', async (_, answer) => {
    await expect(clientOf(answer).client.fetchState()).rejects.toBeInstanceOf(Unreachable);
  });

  it.each([401, 403])('knows a %s of the server itself from a sentence of ours', async status => {
    const { client } = clientOf({ status, body: { message: 'Some Error' } });
    await expect(client.perform('k', { kind: 'evict' })).rejects.toBeInstanceOf(NotAllowed);
    const ours = clientOf({ status, body: { message: 'It is not yours. Ask.' } }).client;
    await expect(ours.perform('k', { kind: 'evict' })).rejects.toEqual(
      new Refused('It is not yours. Ask.')
    );
  });

  it('takes a failed connection for a server that is away', async () => {
    const { client } = clientOf({ status: 200 });
    jest.spyOn(ServerConnection, 'makeRequest').mockRejectedValue(new TypeError('refused'));
    await expect(client.fetchState()).rejects.toBeInstanceOf(Unreachable);
  });
});
