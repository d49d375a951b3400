import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator } from '@jupyterlab/translation';

import { StateClient } from '../client';
import type { PanelModel } from '../model';
import { GPUSharePanel } from '../panel';
import { Badges } from '../shell/badges';
import type { GPUShareSettings } from '../shell/settings';
import { Timelines } from '../timelines';
import {
  CommandIDs,
  IGPUShareModel,
  IGPUShareSettings,
  PANEL_ID,
  PluginIDs,
  TRANSLATION_DOMAIN
} from '../tokens';

export const panelPlugin: JupyterFrontEndPlugin<void> = {
  id: PluginIDs.panel,
  description: 'Shows who has the GPU and who waits for it, in the left sidebar.',
  autoStart: true,
  requires: [IGPUShareModel, IGPUShareSettings, ITranslator],
  // Jupyter Notebook has neither of the first two.
  optional: [ILabShell, ILayoutRestorer, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    model: PanelModel,
    settings: GPUShareSettings,
    translator: ITranslator,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    tracker: INotebookTracker | null
  ) => {
    const trans = translator.load(TRANSLATION_DOMAIN);
    const client = new StateClient({ serverSettings: app.serviceManager.serverSettings });
    const panel = new GPUSharePanel({
      model,
      openNotebook: path => void app.commands.execute(CommandIDs.openNotebook, { path }),
      timelines: new Timelines({ client, news: model.changed }),
      trans
    });
    restorer?.add(panel, PANEL_ID);
    app.shell.add(panel, 'left', { rank: labShell ? 250 : 900, type: 'GPU' });
    // They live as long as the page.
    new Badges({ model, settings, sidebar: panel.title, tracker, trans });
  }
};
