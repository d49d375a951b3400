import { Unreachable } from '../client';
import { StateFeed } from '../feed';
import { FakeClient, FakeStream, settled } from './support/fakes';
import { state } from './support/states';

const POLL_MS = 100;

describe('StateFeed', () => {
  let client: FakeClient;
  let stream: FakeStream;
  let feed: StateFeed;
  let users: unknown[];

  beforeEach(async () => {
    jest.useFakeTimers();
    client = new FakeClient();
    stream = new FakeStream();
    feed = new StateFeed({ client, openStream: stream.open, pollMs: POLL_MS, standby: 'never' });
    users = [];
    feed.arrived.connect((_, value) => users.push((value as { user: string }).user));
    await advance(0);
  });

  afterEach(() => {
    feed.dispose();
    jest.useRealTimers();
  });

  async function advance(ms: number): Promise<void> {
    await settled();
    jest.advanceTimersByTime(ms);
    await settled();
  }

  /** Answers every question that is open, and those that follow, for a while. */
  async function answerFor(ms: number): Promise<void> {
    for (let passed = 0; passed < ms; passed += POLL_MS) {
      await client.answer(client.questions.length - 1, state());
      await advance(POLL_MS);
    }
  }

  it('polls until the stream is up', async () => {
    await answerFor(10 * POLL_MS);
    expect(client.questions.length).toBeGreaterThan(5);
  });

  it('asks once when the stream opens and never again while nothing changes', async () => {
    await client.answer(0, state());
    const before = client.questions.length;
    stream.listener?.opened();
    expect(client.questions.length).toBe(before + 1);
    await answerFor(50 * POLL_MS);
    expect(client.questions.length).toBe(before + 1);
  });

  it('asks once for each change, and once for those that come meanwhile', async () => {
    stream.listener?.opened();
    await answerFor(POLL_MS);
    const before = client.questions.length;
    for (let count = 0; count < 10; count += 1) {
      stream.tell();
    }
    await answerFor(50 * POLL_MS);
    expect(client.questions.length).toBe(before + 2);
  });

  it('goes on asking where the answer to a change fails', async () => {
    stream.listener?.opened();
    await answerFor(POLL_MS);
    stream.tell();
    await client.fail(client.questions.length - 1, new Unreachable('gone'));
    const before = client.questions.length;
    await answerFor(10 * POLL_MS);
    expect(client.questions.length).toBeGreaterThan(before);
    expect(users.length).toBeGreaterThan(1);
  });

  it('stops asking once the server answers again and the stream is up', async () => {
    stream.listener?.opened();
    await answerFor(POLL_MS);
    stream.tell();
    await client.fail(client.questions.length - 1, new Unreachable('gone'));
    await answerFor(10 * POLL_MS);
    const before = client.questions.length;
    await answerFor(50 * POLL_MS);
    expect(client.questions.length).toBe(before);
  });

  it('polls again once the stream is down', async () => {
    stream.listener?.opened();
    await answerFor(5 * POLL_MS);
    const before = client.questions.length;
    stream.listener?.closed();
    await advance(1);
    await answerFor(5 * POLL_MS);
    expect(client.questions.length).toBeGreaterThan(before + 2);
  });

  it('drops an answer that a later one has overtaken', async () => {
    const first = client.questions.length - 1;
    void feed.refresh();
    await client.answer(first + 1, state({ user: 'newer' }));
    await client.answer(first, state({ user: 'older' }));
    expect(users).toEqual(['newer']);
  });

  it('asks less and less often while the server does not answer', async () => {
    for (let passed = 0; passed < 100; passed += 1) {
      await client.fail(client.questions.length - 1, new Unreachable('gone'));
      await advance(POLL_MS);
    }
    expect(client.questions.length).toBeLessThan(30);
  });

  it('is not interested in events of others', () => {
    stream.listener?.received({ schema_id: 'urn:another:v1', user: 'x' });
    expect(users).toEqual([]);
  });

  it('can be disposed twice, and never asks afterwards', async () => {
    feed.dispose();
    feed.dispose();
    const before = client.questions.length;
    stream.listener?.closed();
    stream.tell();
    await advance(10 * POLL_MS);
    expect(client.questions.length).toBe(before);
    expect(users).toEqual([]);
  });
});
