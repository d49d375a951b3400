import { bytesOfMine, holdInTheWayS, MalformedState, parseState, VersionMismatch } from '../state';
import { device, holder, kernel, memory, state, waiter } from './support/states';

describe('parseState', () => {
  it('reads what the server sends', () => {
    const parsed = parseState(
      state({
        devices: [device({ holder: holder(), queue: [waiter()] })],
        kernels: [kernel({ state: 'waits', position: 2 })]
      })
    );
    expect(parsed.devices[0]?.holder).toEqual({
      tenantId: 't1',
      name: 'train.ipynb',
      owner: 'alice',
      mine: true,
      runsAs: '',
      heldS: 5,
      holdLeftS: 0,
      turnLeftS: null,
      frozen: false
    });
    expect(parsed.devices[0]?.queue[0]?.position).toBe(1);
    expect(parsed.kernels[0]?.position).toBe(2);
  });

  it.each([[2], ['1'], [undefined]])('refuses version %p', version => {
    expect(() => parseState(state({ version }))).toThrow(VersionMismatch);
  });

  it('judges the version before anything else', () => {
    expect(() => parseState({ version: 2, devices: 'of another form' })).toThrow(VersionMismatch);
  });

  it.each<[string, unknown]>([
    ['no object', null],
    ['a list', []],
    ['a state of the scheduler that is no word', state({ scheduler: 7 })],
    ['devices that are no list', state({ devices: {} })],
    ['a size that is no number', state({ devices: [device({ bytes_total: 'many' })] })],
    ['a name that is no text', state({ devices: [device({ name: 7 })] })],
    ['a state of a kernel that is no word', state({ kernels: [kernel({ state: {} })] })]
  ])('refuses %s', (_, value) => {
    expect(() => parseState(value)).toThrow(MalformedState);
  });

  it('reads what the caller may not see as empty, and never below nothing', () => {
    const hidden = holder({ name: null, tenant_id: null, held_s: -3, mine: undefined });
    const parsed = parseState(state({ devices: [device({ holder: hidden })] }));
    expect(parsed.devices[0]?.holder).toEqual({
      tenantId: '',
      name: '',
      owner: 'alice',
      mine: false,
      runsAs: '',
      heldS: 0,
      holdLeftS: 0,
      turnLeftS: null,
      frozen: false
    });
  });

  it('adds up what my kernels have on a device', () => {
    const { devices, kernels } = parseState(
      state({
        devices: [device(), device({ id: 'ff'.repeat(16) })],
        kernels: [
          kernel({ memory: [memory(), memory({ device: 'ff'.repeat(16), bytes_resident: 7 })] }),
          kernel({ kernel_id: 'k2', memory: [memory()] }),
          kernel({ kernel_id: 'k3' })
        ]
      })
    );
    expect(devices.map(each => bytesOfMine(each, kernels))).toEqual([2 * 1024 ** 3, 7]);
  });

  it('takes words of a newer server for those that say the least', () => {
    const parsed = parseState(
      state({
        scheduler: 'odd',
        devices: [device({ mode: 'odd' })],
        kernels: [kernel({ state: 'odd' })],
        newer: {}
      })
    );
    expect(parsed.scheduler).toBe('up');
    expect(parsed.devices[0]?.mode).toBe('open');
    expect(parsed.kernels[0]?.state).toBe('idle');
  });

  it('does without what an older server extension does not tell', () => {
    const parsed = parseState(state({ kernels: [kernel({ memory: undefined })] }));
    expect(parsed.kernels[0]?.memory).toEqual([]);
    expect(parsed.devices[0]?.bytesForeign).toBeNull();
  });

  it('knows whose hold a kernel waits for', () => {
    const { devices, kernels } = parseState(
      state({
        devices: [
          device({ holder: holder({ hold_left_s: 9 }), queue: [waiter()] }),
          device({ id: 'ff'.repeat(16), holder: holder({ hold_left_s: 60 }) })
        ],
        kernels: [
          kernel({ tenant_id: 't2', state: 'waits' }),
          kernel({ tenant_id: 't1', state: 'holds' }),
          kernel({ tenant_id: null, state: 'unshared' })
        ]
      })
    );
    expect(kernels.map(each => holdInTheWayS(each, devices))).toEqual([9, 0, 0]);
  });
});
