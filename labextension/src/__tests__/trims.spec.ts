import { nullTranslator } from '@jupyterlab/translation';

import { Refused } from '../client';
import { StateFeed } from '../feed';
import { PanelModel } from '../model';
import { canTrim } from '../shell/actions';
import { parseState, type IKernel } from '../state';
import { formatTrim, trim } from '../trims';
import { FakeClient, FakeStream, settled } from './support/fakes';
import { kernel, memory, state } from './support/states';

const trans = nullTranslator.load('jupyter_gpushare');

function parsed(fields: object): IKernel {
  const [shown] = parseState(state({ kernels: [kernel(fields)] })).kernels;
  if (!shown) {
    throw new Error('no kernel');
  }
  return shown;
}

describe('formatTrim', () => {
  it.each([
    [null, 'idle', ''],
    [{ stage: 'queued' }, 'holds', 'Unused GPU memory is given back after the cell that runs.'],
    [{ stage: 'a newer one' }, 'idle', 'Unused GPU memory is given back after the cell that runs.'],
    [{ stage: 'runs' }, 'holds', 'Giving back unused GPU memory…'],
    [{ stage: 'runs' }, 'waits', 'Unused GPU memory is given back as soon as it has the GPU.'],
    [
      { stage: 'done', bytes: 1.25 * 1024 ** 3 },
      'idle',
      '1.3 GiB of unused GPU memory given back.'
    ],
    [
      { stage: 'done', bytes: 0 },
      'idle',
      'Nothing to give back: PyTorch and CuPy keep no GPU memory unused here.'
    ],
    [{ stage: 'failed', message: 'It ended. Ask again.' }, 'idle', 'It ended. Ask again.']
  ])('words %j', (told, is, words) => {
    expect(formatTrim(parsed({ state: is, trim: told }), trans)).toBe(words);
  });
});

describe('canTrim', () => {
  const server = { actions: ['release', 'trim'] };

  it('follows what the server passes on, and what the kernel has', () => {
    expect(canTrim(parsed({ memory: [memory()] }), server)).toBe(true);
    expect(canTrim(parsed({ memory: [memory()] }), { actions: ['evict'] })).toBe(false);
    expect(canTrim(parsed({ memory: [memory()] }), undefined)).toBe(false);
    expect(canTrim(parsed({ memory: [] }), server)).toBe(false);
    expect(canTrim(parsed({ memory: [memory()], tenant_id: null }), server)).toBe(false);
    expect(canTrim(undefined, server)).toBe(false);
  });

  it('waits for the answer before it asks again', () => {
    const asked = (stage: string): IKernel => parsed({ memory: [memory()], trim: { stage } });
    expect(canTrim(asked('queued'), server)).toBe(false);
    expect(canTrim(asked('runs'), server)).toBe(false);
    expect(canTrim(asked('failed'), server)).toBe(true);
  });
});

describe('trim', () => {
  let client: FakeClient;
  let stream: FakeStream;
  let model: PanelModel;

  beforeEach(async () => {
    client = new FakeClient();
    stream = new FakeStream();
    const feed = new StateFeed({ client, openStream: stream.open });
    model = new PanelModel({ client, feed });
    stream.listener?.opened();
    await send({ trim: { number: 3, stage: 'done', bytes: 7 } });
  });

  afterEach(() => {
    model.dispose();
  });

  async function send(...kernels: object[]): Promise<void> {
    stream.tell();
    for (let number = 0; number < client.questions.length; number += 1) {
      await client.answer(number, state({ kernels: kernels.map(each => kernel(each)) }));
    }
  }

  it('answers what came of this wish, and not of an earlier one', async () => {
    let told: unknown;
    void trim(model, 'k1', trans).then(answer => (told = answer));
    await settled();
    expect(client.performed).toEqual([['k1', { kind: 'trim' }]]);
    expect(told).toBeUndefined();
    await send({ trim: { number: 4, stage: 'runs' } });
    expect(told).toBeUndefined();
    await send({ trim: { number: 4, stage: 'done', bytes: 1024 ** 3 } });
    expect(told).toEqual({ failed: false, text: '1.0 GiB of unused GPU memory given back.' });
  });

  it('says that it failed, and why', async () => {
    const asked = trim(model, 'k1', trans);
    await settled();
    await send({ trim: { number: 4, stage: 'failed', message: 'It ended.' } });
    expect(await asked).toEqual({ failed: true, text: 'It ended.' });
  });

  it('says why the server refuses', async () => {
    client.actionAnswer = Promise.reject(new Refused('This kernel runs R. Restart it.'));
    expect(await trim(model, 'k1', trans)).toEqual({
      failed: true,
      text: 'This kernel runs R. Restart it.'
    });
  });

  it('says nothing of a kernel that has gone, or of which something else is asked', async () => {
    const asked = trim(model, 'k1', trans);
    await settled();
    await send();
    expect(await asked).toBeNull();
    client.actionAnswer = new Promise(() => undefined);
    void model.releaseTurn('k1');
    expect(await trim(model, 'k1', trans)).toBeNull();
  });
});
