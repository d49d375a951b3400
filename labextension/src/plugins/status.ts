import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator } from '@jupyterlab/translation';
import { DisposableDelegate } from '@lumino/disposable';

import type { PanelModel } from '../model';
import { CurrentKernel, kernelIdOf } from '../shell/currentKernel';
import type { GPUShareSettings } from '../shell/settings';
import { StatusItem } from '../shell/statusItem';
import {
  CommandIDs,
  IGPUShareModel,
  IGPUShareSettings,
  PluginIDs,
  TRANSLATION_DOMAIN
} from '../tokens';

/** The name of the item in the status bar and in a notebook's toolbar. */
const ITEM = 'gpushare-status';

export const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: PluginIDs.status,
  description: 'Says in a few words who has the GPU: in the status bar, or in the toolbar.',
  autoStart: true,
  requires: [IGPUShareModel, IGPUShareSettings, ITranslator],
  optional: [IStatusBar, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    model: PanelModel,
    settings: GPUShareSettings,
    translator: ITranslator,
    statusBar: IStatusBar | null,
    tracker: INotebookTracker | null
  ) => {
    const options = {
      model,
      settings,
      onOpen: () => void app.commands.execute(CommandIDs.showPanel),
      trans: translator.load(TRANSLATION_DOMAIN)
    };
    if (statusBar) {
      const current = new CurrentKernel(tracker);
      const item = new StatusItem({
        ...options,
        kernelId: () => current.id,
        kernelChanged: current.changed
      });
      statusBar.registerStatusItem(ITEM, { align: 'left', item, rank: 4 });
    } else {
      addToToolbars(app, options);
    }
  }
};

/** Jupyter Notebook has no status bar: each notebook has the item in its toolbar. */
function addToToolbars(
  app: JupyterFrontEnd,
  options: Omit<StatusItem.IOptions, 'kernelChanged' | 'kernelId'>
): void {
  app.docRegistry.addWidgetExtension('Notebook', {
    createNew: (panel: NotebookPanel) => {
      const item = new StatusItem({
        ...options,
        kernelId: () => kernelIdOf(panel),
        kernelChanged: panel.sessionContext.kernelChanged
      });
      // Where space is short, what stands last is hidden first.
      if (!panel.toolbar.insertBefore('kernelName', ITEM, item)) {
        panel.toolbar.addItem(ITEM, item);
      }
      return new DisposableDelegate(() => {
        item.dispose();
      });
    }
  });
}
