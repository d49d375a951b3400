import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator } from '@jupyterlab/translation';

import type { PanelModel } from '../model';
import type { GPUShareSettings } from '../shell/settings';
import { IGPUShareModel, IGPUShareSettings, PluginIDs, TRANSLATION_DOMAIN } from '../tokens';
import { WaitLines } from '../waitLines';

export const waitLinesPlugin: JupyterFrontEndPlugin<void> = {
  id: PluginIDs.waitLines,
  description: 'Says at a cell that it waits for the GPU, and for how long.',
  autoStart: true,
  requires: [IGPUShareModel, IGPUShareSettings, INotebookTracker, ITranslator],
  activate: (
    _: JupyterFrontEnd,
    model: PanelModel,
    settings: GPUShareSettings,
    tracker: INotebookTracker,
    translator: ITranslator
  ) => {
    // It lives as long as the page.
    new WaitLines({ model, settings, tracker, trans: translator.load(TRANSLATION_DOMAIN) });
  }
};
