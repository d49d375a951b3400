import { canNotify, canPerform, canRelease, hasMemory, isKept } from '../shell/actions';
import { KERNEL_STATES, parseState, type IKernel } from '../state';
import { kernel, memory, state } from './support/states';

function kernelOf(fields: object): IKernel | undefined {
  return parseState(state({ kernels: [kernel(fields)] })).kernels[0];
}

describe('an action', () => {
  it('is offered to no kernel that is not there', () => {
    const offered = [canRelease, canNotify, isKept, hasMemory].map(can => can(undefined));
    expect(offered).toEqual([false, false, false, false]);
    expect(canPerform(undefined, { actions: ['hold'] }, 'hold')).toBe(false);
  });

  it('releases a turn or a reservation, and tells of a wait', () => {
    const kernels = KERNEL_STATES.map(each => kernelOf({ state: each }));
    expect(kernels.map(canRelease)).toEqual([false, false, true, false, false]);
    expect(kernels.map(canNotify)).toEqual([false, true, false, false, false]);
    expect(canRelease(kernelOf({ hold_to_come_s: 60 }))).toBe(true);
  });

  it('is offered only where the server passes it on, to kernels that share', () => {
    const sharing = kernelOf({});
    expect(canPerform(sharing, { actions: ['hold'] }, 'hold')).toBe(true);
    expect(canPerform(sharing, { actions: ['hold'] }, 'evict')).toBe(false);
    expect(canPerform(sharing, undefined, 'hold')).toBe(false);
    expect(canPerform(kernelOf({ tenant_id: '' }), { actions: ['hold'] }, 'hold')).toBe(false);
  });

  it('ends what is kept, and frees what is there', () => {
    expect(isKept(kernelOf({}))).toBe(false);
    expect(isKept(kernelOf({ hold_left_s: 5 }))).toBe(true);
    expect(isKept(kernelOf({ hold_to_come_s: 5 }))).toBe(true);
    expect(hasMemory(kernelOf({ memory: [memory()] }))).toBe(true);
    expect(hasMemory(kernelOf({ memory: [memory({ bytes_resident: 0 })] }))).toBe(false);
  });
});
