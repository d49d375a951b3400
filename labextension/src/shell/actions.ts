/** What can be done with a kernel now. */

import type { IKernel } from '../state';

/** It has a turn, or has reserved its next one. */
export function canRelease(kernel: IKernel | undefined): boolean {
  return kernel !== undefined && (kernel.state === 'holds' || kernel.holdToComeS > 0);
}

/** It waits, so that there is something to be told of. */
export function canNotify(kernel: IKernel | undefined): boolean {
  return kernel?.state === 'waits';
}
