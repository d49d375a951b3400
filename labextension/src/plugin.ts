import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, type TranslationBundle } from '@jupyterlab/translation';

import { StateClient } from './client';
import { openEventStream } from './eventStream';
import { StateFeed } from './feed';
import { gpuIcon } from './icon';
import { PanelModel } from './model';
import { GPUSharePanel } from './panel';
import { CommandIDs, IGPUShareModel, PANEL_ID, PluginIDs } from './tokens';
import { WaitLines } from './waitLines';

export const modelPlugin: JupyterFrontEndPlugin<PanelModel> = {
  id: PluginIDs.model,
  description: 'Knows who has the GPU and who waits for it.',
  autoStart: true,
  provides: IGPUShareModel,
  activate: app => {
    const { serverSettings } = app.serviceManager;
    const client = new StateClient({ serverSettings });
    const feed = new StateFeed({
      client,
      openStream: listener => openEventStream(serverSettings, listener)
    });
    return new PanelModel({ client, feed });
  }
};

export const panelPlugin: JupyterFrontEndPlugin<void> = {
  id: PluginIDs.panel,
  description: 'Shows who has the GPU and who waits for it, in the left sidebar.',
  autoStart: true,
  requires: [IGPUShareModel, ITranslator],
  // Jupyter Notebook has neither of the first two.
  optional: [ILabShell, ILayoutRestorer, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    model: PanelModel,
    translator: ITranslator,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null
  ) => {
    const trans = translator.load('jupyter_gpushare');
    addCommands(app, model, trans);
    palette?.addItem({ command: CommandIDs.showPanel, category: trans.__('GPU') });
    const panel = new GPUSharePanel({
      model,
      openNotebook: path => void app.commands.execute(CommandIDs.openNotebook, { path }),
      trans
    });
    restorer?.add(panel, PANEL_ID);
    app.shell.add(panel, 'left', { rank: labShell ? 250 : 900, type: 'GPU' });
  }
};

export const waitLinesPlugin: JupyterFrontEndPlugin<void> = {
  id: PluginIDs.waitLines,
  description: 'Says at a cell that it waits for the GPU, and for how long.',
  autoStart: true,
  requires: [IGPUShareModel, INotebookTracker, ITranslator],
  activate: (
    _: JupyterFrontEnd,
    model: PanelModel,
    tracker: INotebookTracker,
    translator: ITranslator
  ) => {
    // It lives as long as the page.
    new WaitLines({ model, tracker, trans: translator.load('jupyter_gpushare') });
  }
};

function addCommands(app: JupyterFrontEnd, model: PanelModel, trans: TranslationBundle): void {
  const { commands, shell } = app;
  commands.addCommand(CommandIDs.showPanel, {
    label: trans.__('Show the GPU queue'),
    caption: trans.__('Show who has the GPU and who waits for it'),
    icon: gpuIcon,
    execute: () => {
      shell.activateById(PANEL_ID);
    }
  });
  commands.addCommand(CommandIDs.releaseTurn, {
    label: trans.__('Release the turn of a kernel'),
    caption: trans.__('Let the next in the queue have the GPU now'),
    execute: ({ kernelId }) =>
      typeof kernelId === 'string' ? model.releaseTurn(kernelId) : undefined
  });
  commands.addCommand(CommandIDs.openNotebook, {
    label: trans.__('Show a notebook'),
    execute: ({ path }) => (path ? commands.execute('docmanager:open', { path }) : undefined)
  });
}
