import type { IRunningSessions } from '@jupyterlab/running';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { LabIcon } from '@jupyterlab/ui-components';
import { Signal, type ISignal } from '@lumino/signaling';

import { formatKernel, ordinal } from '../format';
import type { PanelModel } from '../model';
import type { IKernel } from '../state';
import { canRelease } from './actions';

/** My kernels that share the GPU, those first that have it or wait for it. */
export function tenantsOf(kernels: readonly IKernel[]): readonly IKernel[] {
  const ranks = ['holds', 'waits', 'idle'];
  return kernels
    .filter(kernel => kernel.tenantId !== '' && ranks.includes(kernel.state))
    .sort(
      (a, b) =>
        ranks.indexOf(a.state) - ranks.indexOf(b.state) || (a.position ?? 0) - (b.position ?? 0)
    );
}

/** Beside a kernel's name; without times, for the list does not count. */
export function formatTenancy(kernel: IKernel, trans: TranslationBundle): string {
  switch (kernel.state) {
    case 'holds':
      return trans.__('has it');
    case 'waits':
      return (kernel.wait?.usedS ?? 0) > 0
        ? trans.__('paused')
        : kernel.position === null
          ? trans.__('waits')
          : trans.__('%1 in the queue', ordinal(kernel.position, trans));
    default:
      return trans.__('idle');
  }
}

/** A section of the Running sidebar. Where others shut down, it releases the GPU: no kernel ends. */
export class GPURunning implements IRunningSessions.IManager {
  constructor(private readonly _options: GPURunning.IOptions) {
    const { model, releaseIcon, trans } = _options;
    this.name = trans.__('GPU');
    this.shutdownLabel = trans.__('Release the GPU');
    this.shutdownAllLabel = trans.__('Release All');
    this.shutdownAllConfirmationText = trans.__(
      'Let others have the GPU now? Nothing is lost: your cells go on at their next turn.'
    );
    this.shutdownItemIcon = releaseIcon;
    model.changed.connect(this._look, this);
  }

  readonly name: string;
  readonly shutdownLabel: string;
  readonly shutdownAllLabel: string;
  readonly shutdownAllConfirmationText: string;
  readonly shutdownItemIcon: LabIcon;

  get runningChanged(): ISignal<this, undefined> {
    return this._changed;
  }

  running(): IRunningSessions.IRunningItem[] {
    const { icon, model, onOpen, trans } = this._options;
    return this._tenants().map(kernel => ({
      icon: () => icon,
      label: () => formatKernel(kernel),
      labelTitle: () => `${kernel.path || kernel.name}: ${formatTenancy(kernel, trans)}`,
      detail: () => formatTenancy(kernel, trans),
      ...(kernel.path
        ? {
            open: () => {
              onOpen(kernel.path);
            }
          }
        : {}),
      ...(canRelease(kernel) ? { shutdown: () => void model.releaseTurn(kernel.kernelId) } : {})
    }));
  }

  shutdownAll(): void {
    for (const kernel of this._tenants().filter(canRelease)) {
      void this._options.model.releaseTurn(kernel.kernelId);
    }
  }

  refreshRunning(): void {
    void this._options.model.refresh();
  }

  private _tenants(): readonly IKernel[] {
    return tenantsOf(this._options.model.snapshot?.state.kernels ?? []);
  }

  /** The list is drawn again only when it would read differently. */
  private _look(): void {
    const { trans } = this._options;
    const shown = this._tenants()
      .map(each => [each.kernelId, each.path, formatTenancy(each, trans), canRelease(each)].join())
      .join('\n');
    if (shown !== this._shown) {
      this._shown = shown;
      this._changed.emit(undefined);
    }
  }

  private readonly _changed = new Signal<this, undefined>(this);
  private _shown = '';
}

export namespace GPURunning {
  export interface IOptions {
    readonly model: PanelModel;
    readonly icon: LabIcon;
    readonly releaseIcon: LabIcon;
    /** Shows the notebook with this path. */
    readonly onOpen: (path: string) => void;
    readonly trans: TranslationBundle;
  }
}
