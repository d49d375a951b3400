import type { IKernel } from './state';

/** Less comes back before anybody has read a line about it. */
export const TOLD_FROM_BYTES = 512 * 2 ** 20;

/** Memory of a kernel that has the turn, on its way back to the GPU. */
export interface IRestore {
  readonly bytesBack: number;
  readonly bytesTotal: number;
  /** Null until something has come back. */
  readonly leftS: number | null;
  readonly sinceMs: number;
}

/** What of a kernel's memory has still to come back before its cell goes on. */
export function bytesToRestore(kernel: IKernel): number {
  return kernel.state === 'holds'
    ? kernel.memory.reduce((sum, memory) => sum + memory.bytesParked, 0)
    : 0;
}

/** Follows the memory of each kernel from the moment at which its turn begins. */
export class Restores {
  /** Null where little or nothing comes back. */
  look(kernel: IKernel, nowMs: number): IRestore | null {
    const bytesLeft = bytesToRestore(kernel);
    const before = this._began.get(kernel.kernelId);
    if (bytesLeft === 0) {
      this._began.delete(kernel.kernelId);
      return null;
    }
    // More than there was: it is another turn, whose beginning was not seen apart.
    const began =
      before && before.bytes >= bytesLeft ? before : { bytes: bytesLeft, sinceMs: nowMs };
    this._began.set(kernel.kernelId, began);
    if (began.bytes < TOLD_FROM_BYTES) {
      return null;
    }
    const bytesBack = began.bytes - bytesLeft;
    const tookS = (nowMs - began.sinceMs) / 1000;
    return {
      bytesBack,
      bytesTotal: began.bytes,
      leftS: bytesBack > 0 ? (bytesLeft * tookS) / bytesBack : null,
      sinceMs: began.sinceMs
    };
  }

  private readonly _began = new Map<string, { bytes: number; sinceMs: number }>();
}
