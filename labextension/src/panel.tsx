import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { Message } from '@lumino/messaging';
import type { ReactElement } from 'react';

import { gpuIcon } from './icon';
import type { PanelModel } from './model';
import type { Timelines } from './timelines';
import { TimelineContext } from './timelineView';
import { PANEL_ID } from './tokens';
import { PanelView } from './view';

/** The sidebar. It has no state: it renders the model, again at each of its changes. */
export class GPUSharePanel extends ReactWidget {
  constructor(options: GPUSharePanel.IOptions) {
    super();
    this._options = options;
    const { trans } = options;
    this.id = PANEL_ID;
    this.addClass('jp-gpushare-Panel');
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPU: who has it and who waits');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPU sharing'));
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    // A stream that a sleeping computer or a proxy cut in silence must not leave an old picture.
    void this._options.model.refresh();
  }

  protected override render(): ReactElement {
    const { model, openNotebook, timelines, trans } = this._options;
    return (
      <UseSignal signal={model.changed}>
        {() => (
          <TimelineContext.Provider value={timelines}>
            <PanelView
              actionProblem={kernelId => model.actionProblem(kernelId)}
              onAct={(kernelId, action) => void model.perform(kernelId, action)}
              onOpen={openNotebook}
              onRetry={() => void model.refresh()}
              pendingAction={kernelId => model.pendingAction(kernelId)}
              problem={model.problem}
              snapshot={model.snapshot}
              trans={trans}
            />
          </TimelineContext.Provider>
        )}
      </UseSignal>
    );
  }

  private readonly _options: GPUSharePanel.IOptions;
}

export namespace GPUSharePanel {
  export interface IOptions {
    readonly model: PanelModel;
    /** Shows the notebook with this path. */
    readonly openNotebook: (path: string) => void;
    readonly timelines: Timelines;
    readonly trans: TranslationBundle;
  }
}
