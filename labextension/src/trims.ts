/** What a kernel was asked to give back of the memory that its frameworks keep unused. */

import type { TranslationBundle } from '@jupyterlab/translation';

import { formatBytes, formatProblem } from './format';
import type { PanelModel } from './model';
import type { IKernel, ITrim } from './state';

/** It has not answered yet. */
export function isTrimming(kernel: IKernel | undefined): boolean {
  return kernel?.trim?.stage === 'queued' || kernel?.trim?.stage === 'runs';
}

/** Where it stands, in a sentence; empty where nothing was asked. */
export function formatTrim(kernel: IKernel, trans: TranslationBundle): string {
  const { trim } = kernel;
  switch (trim?.stage) {
    case undefined:
      return '';
    case 'queued':
      return trans.__('Unused GPU memory is given back after the cell that runs.');
    case 'runs':
      return kernel.state === 'waits'
        ? trans.__('Unused GPU memory is given back as soon as it has the GPU.')
        : trans.__('Giving back unused GPU memory…');
    case 'done':
      return trim.bytes > 0
        ? trans.__('%1 of unused GPU memory given back.', formatBytes(trim.bytes))
        : trans.__('Nothing to give back: PyTorch and CuPy keep no GPU memory unused here.');
    case 'failed':
      return trim.message;
  }
}

/** What came of it, for somebody who does not look at the panel. */
export interface ITrimmed {
  readonly failed: boolean;
  readonly text: string;
}

/** Asks, and answers once it is known what came of it; null where nobody will know. */
export async function trim(
  model: PanelModel,
  kernelId: string,
  trans: TranslationBundle
): Promise<ITrimmed | null> {
  const find = (): IKernel | undefined =>
    model.snapshot?.state.kernels.find(kernel => kernel.kernelId === kernelId);
  if (model.pendingAction(kernelId)) {
    return null;
  }
  const before = trimNumber(find());
  await model.perform(kernelId, { kind: 'trim' });
  const problem = model.actionProblem(kernelId);
  if (problem) {
    return { failed: true, text: formatProblem(problem, trans) };
  }
  const look = (): ITrimmed | null | undefined => {
    const kernel = find();
    if (!kernel) {
      // Without a state nobody knows.
      return model.snapshot ? null : undefined;
    }
    return trimNumber(kernel) > before && !isTrimming(kernel)
      ? { failed: kernel.trim?.stage === 'failed', text: formatTrim(kernel, trans) }
      : undefined;
  };
  return new Promise(resolve => {
    const onChanged = (): void => {
      const told = look();
      if (told !== undefined) {
        model.changed.disconnect(onChanged);
        resolve(told);
      }
    };
    model.changed.connect(onChanged);
    onChanged();
  });
}

/** Of the last time that it was asked. */
function trimNumber(kernel: IKernel | undefined): number {
  const trim: ITrim | null | undefined = kernel?.trim;
  return trim?.number ?? 0;
}
