/** What can be done with a kernel now. */

import { hasAllocated } from '../kernelActions';
import type { IKernel, IState } from '../state';
import { isTrimming } from '../trims';

/** It has a turn, or has reserved its next one. */
export function canRelease(kernel: IKernel | undefined): boolean {
  return kernel !== undefined && (kernel.state === 'holds' || kernel.holdToComeS > 0);
}

/** It waits, so that there is something to be told of. */
export function canNotify(kernel: IKernel | undefined): boolean {
  return kernel?.state === 'waits';
}

/** The server passes the action on, and the kernel shares the GPU. */
export function canPerform(
  kernel: IKernel | undefined,
  state: Pick<IState, 'actions'> | undefined,
  action: 'hold' | 'evict' | 'trim'
): boolean {
  return kernel !== undefined && kernel.tenantId !== '' && state?.actions.includes(action) === true;
}

/** It may keep memory unused, and is not asked for it already. */
export function canTrim(
  kernel: IKernel | undefined,
  state: Pick<IState, 'actions'> | undefined
): boolean {
  return (
    canPerform(kernel, state, 'trim') &&
    kernel !== undefined &&
    hasAllocated(kernel) &&
    !isTrimming(kernel)
  );
}

/** It keeps the GPU between cells, or will. */
export function isKept(kernel: IKernel | undefined): boolean {
  return kernel !== undefined && (kernel.holdLeftS > 0 || kernel.holdToComeS > 0);
}

/** It has something on a device. */
export function hasMemory(kernel: IKernel | undefined): boolean {
  return kernel?.memory.some(memory => memory.bytesResident > 0) === true;
}
