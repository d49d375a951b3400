import type { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import type { ISignal } from '@lumino/signaling';
import type { ReactElement } from 'react';

import type { PanelModel } from '../model';
import { Glance } from './glance';
import type { GPUShareSettings } from './settings';
import { glanceAt } from './words';

/** The glance at the GPU as an item of a status bar or a toolbar. */
export class StatusItem extends ReactWidget {
  constructor(private readonly _options: StatusItem.IOptions) {
    super();
    this.addClass('jp-gpushare-StatusItem');
    const { kernelChanged, model, settings } = _options;
    for (const signal of [model.changed, kernelChanged, settings.changed]) {
      signal.connect(this._look, this);
    }
    this._look();
  }

  private _look(): void {
    const { kernelId, model, settings, trans } = this._options;
    const glance = glanceAt(model.snapshot, model.problem, kernelId(), 0, trans);
    this._isShown = settings.value.showStatusItem && glance !== null;
    this.setHidden(!this._isShown);
    this.update();
  }

  protected override render(): ReactElement | null {
    const { kernelId, model, onOpen, trans } = this._options;
    return this._isShown ? (
      <Glance
        kernelId={kernelId()}
        onOpen={onOpen}
        problem={model.problem}
        snapshot={model.snapshot}
        trans={trans}
      />
    ) : null;
  }

  private _isShown = false;
}

export namespace StatusItem {
  export interface IOptions {
    readonly model: PanelModel;
    readonly settings: GPUShareSettings;
    /** The kernel that it is about; undefined: the one of mine that matters most. */
    readonly kernelId: () => string | undefined;
    /** What `kernelId` answers may have changed. */
    readonly kernelChanged: ISignal<unknown, unknown>;
    readonly onOpen: () => void;
    readonly trans: TranslationBundle;
  }
}
