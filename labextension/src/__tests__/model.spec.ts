import { NotAllowed, NotInstalled, Refused, Unreachable } from '../client';
import { StateFeed } from '../feed';
import { PanelModel } from '../model';
import { FakeClient, FakeStream, settled } from './support/fakes';
import { kernel, state } from './support/states';

describe('PanelModel', () => {
  let client: FakeClient;
  let stream: FakeStream;
  let model: PanelModel;
  let changes: number;

  beforeEach(() => {
    client = new FakeClient();
    stream = new FakeStream();
    const feed = new StateFeed({ client, openStream: stream.open });
    model = new PanelModel({ client, feed, clockMs: () => 1000 });
    changes = 0;
    model.changed.connect(() => {
      changes += 1;
    });
    stream.listener?.opened();
  });

  afterEach(() => {
    model.dispose();
  });

  /** Tells of a change, and answers what is asked because of it. */
  async function send(value: object): Promise<void> {
    stream.tell();
    for (let number = 0; number < client.questions.length; number += 1) {
      await client.answer(number, value);
    }
  }

  it('has the state as of the last event, and when it came', async () => {
    await send(state({ user: 'alice' }));
    await send(state({ user: 'bob' }));
    expect(model.snapshot?.state.user).toBe('bob');
    expect(model.snapshot?.receivedAtMs).toBe(1000);
    expect(changes).toBeGreaterThan(1);
  });

  it('shows nothing but the mismatch while the versions differ', async () => {
    await send(state());
    await send({ ...state(), version: 2 });
    expect(model.snapshot).toBeNull();
    expect(model.problem).toEqual({ kind: 'version', theirs: '2' });
    await send(state());
    expect(model.problem).toBeNull();
  });

  it('shows nothing of a state that it cannot read', async () => {
    await send(state({ devices: 7 }));
    expect(model.snapshot).toBeNull();
    expect(model.problem).toEqual({ kind: 'malformed' });
  });

  it('keeps the last state while the server does not answer, and says so', async () => {
    await client.answer(0, state());
    stream.listener?.closed();
    const last = client.questions.length - 1;
    await client.fail(last, new Unreachable('gone'));
    void model.refresh();
    await client.fail(client.questions.length - 1, new Unreachable('gone'));
    expect(model.problem).toEqual({ kind: 'unreachable' });
  });

  it('shows no state of a server without the extension', async () => {
    await send(state());
    void model.refresh();
    await client.fail(client.questions.length - 1, new NotInstalled(''));
    expect(model.snapshot).toBeNull();
    expect(model.problem).toEqual({ kind: 'not-installed' });
  });

  it('asks once for a release, however often the button is pressed', async () => {
    const first = model.releaseTurn('k1');
    const second = model.releaseTurn('k1');
    expect(model.pendingAction('k1')).toEqual({ kind: 'release' });
    await Promise.all([first, second]);
    expect(client.performed).toEqual([['k1', { kind: 'release' }]]);
    expect(model.pendingAction('k1')).toBeNull();
    expect(model.actionProblem('k1')).toBeNull();
  });

  it('tells why an action failed until the kernel is in another state', async () => {
    await send(state({ kernels: [kernel({ state: 'holds' })] }));
    client.actionAnswer = Promise.reject(new Refused('It does not hold. Wait.'));
    await model.perform('k1', { kind: 'hold', seconds: 60 });
    await send(state({ kernels: [kernel({ state: 'holds', reason: 'Another one.' })] }));
    expect(model.actionProblem('k1')).toEqual({
      kind: 'refused',
      message: 'It does not hold. Wait.'
    });
    await send(state({ kernels: [kernel({ state: 'idle' })] }));
    expect(model.actionProblem('k1')).toBeNull();
  });

  it('forgets the refusal of a kernel that has ended', async () => {
    await send(state({ kernels: [kernel()] }));
    client.actionAnswer = Promise.reject(new Refused('This kernel has just ended.'));
    await model.perform('k1', { kind: 'evict' });
    expect(model.actionProblem('k1')).not.toBeNull();
    await send(state());
    expect(model.actionProblem('k1')).toBeNull();
  });

  it('asks nothing and tells nothing of a kernel that ends while it is asked for', async () => {
    await send(state({ kernels: [kernel()] }));
    let end: (error: Error) => void = () => undefined;
    client.actionAnswer = new Promise((_, reject) => {
      end = reject;
    });
    const asked = model.releaseTurn('k1');
    await send(state());
    end(new Refused('This kernel has just ended. Nothing is left to do.'));
    await asked;
    expect(model.pendingAction('k1')).toBeNull();
    expect(model.actionProblem('k1')).toBeNull();
    await send(state({ kernels: [kernel()] }));
    client.actionAnswer = Promise.resolve();
    await model.releaseTurn('k1');
    expect(client.performed).toHaveLength(2);
  });

  it('keeps what it knew when the connection is lost in the middle of an answer', async () => {
    await send(state({ user: 'alice' }));
    stream.tell();
    stream.listener?.closed();
    await client.fail(client.questions.length - 1, new Unreachable('half an answer'));
    expect(model.snapshot?.state.user).toBe('alice');
    expect(model.problem).toEqual({ kind: 'unreachable' });
    stream.listener?.opened();
    await client.answer(client.questions.length - 1, state({ user: 'bob' }));
    expect(model.snapshot?.state.user).toBe('bob');
    expect(model.problem).toBeNull();
  });

  it('says that the server does not let its user do something', async () => {
    await send(state({ kernels: [kernel()] }));
    client.actionAnswer = Promise.reject(new NotAllowed(''));
    await model.releaseTurn('k1');
    expect(model.actionProblem('k1')).toEqual({ kind: 'not-allowed' });
  });

  it('can be disposed twice, and is silent afterwards', async () => {
    model.dispose();
    model.dispose();
    expect(stream.isDisposed).toBe(true);
    stream.tell();
    await model.releaseTurn('k1');
    await settled();
    expect(changes).toBe(0);
    expect(client.performed).toEqual([]);
  });
});
