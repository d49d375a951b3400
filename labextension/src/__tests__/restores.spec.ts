import { Restores, TOLD_FROM_BYTES } from '../restores';
import { parseState, type IKernel } from '../state';
import { kernel, memory, state } from './support/states';

const GIB = 2 ** 30;

function holding(bytesParked: number, word = 'holds'): IKernel {
  const told = kernel({ state: word, memory: [memory({ bytes_parked: bytesParked })] });
  const [parsed] = parseState(state({ kernels: [told] })).kernels;
  if (!parsed) {
    throw new Error('no kernel');
  }
  return parsed;
}

describe('Restores', () => {
  it('tells how much has come back, and when the rest will be', () => {
    const restores = new Restores();
    expect(restores.look(holding(8 * GIB), 1000)).toEqual({
      bytesBack: 0,
      bytesTotal: 8 * GIB,
      leftS: null,
      sinceMs: 1000
    });
    expect(restores.look(holding(6 * GIB), 2000)).toEqual({
      bytesBack: 2 * GIB,
      bytesTotal: 8 * GIB,
      leftS: 3,
      sinceMs: 1000
    });
  });

  it('is silent about little memory, and about kernels without the turn', () => {
    const restores = new Restores();
    expect(restores.look(holding(TOLD_FROM_BYTES - 1), 0)).toBeNull();
    expect(restores.look(holding(8 * GIB, 'waits'), 0)).toBeNull();
    expect(restores.look(holding(0), 0)).toBeNull();
  });

  it('begins anew with the next turn', () => {
    const restores = new Restores();
    restores.look(holding(8 * GIB), 0);
    restores.look(holding(0), 1000);
    expect(restores.look(holding(4 * GIB), 5000)?.bytesTotal).toBe(4 * GIB);
    expect(restores.look(holding(8 * GIB), 9000)?.sinceMs).toBe(9000);
  });
});
