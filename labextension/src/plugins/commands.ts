import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator } from '@jupyterlab/translation';

import type { PanelModel } from '../model';
import { addCommands } from '../shell/commands';
import { CurrentKernel } from '../shell/currentKernel';
import type { Notices } from '../shell/notices';
import type { GPUShareSettings } from '../shell/settings';
import {
  IGPUShareModel,
  IGPUShareNotices,
  IGPUShareSettings,
  PluginIDs,
  TRANSLATION_DOMAIN
} from '../tokens';

export const commandsPlugin: JupyterFrontEndPlugin<void> = {
  id: PluginIDs.commands,
  description: 'Adds the commands of the GPU, also to the palette.',
  autoStart: true,
  requires: [IGPUShareModel, IGPUShareSettings, IGPUShareNotices, ITranslator],
  optional: [ICommandPalette, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    model: PanelModel,
    settings: GPUShareSettings,
    notices: Notices,
    translator: ITranslator,
    palette: ICommandPalette | null,
    tracker: INotebookTracker | null
  ) => {
    const trans = translator.load(TRANSLATION_DOMAIN);
    const current = new CurrentKernel(tracker);
    const shown = addCommands({ app, current, model, notices, settings, trans });
    // "gpushare", typed into the palette, finds each of them: its letters are in "GPU sharing …e".
    const category = trans.__('GPU sharing');
    for (const command of shown) {
      palette?.addItem({ command, category });
    }
  }
};
