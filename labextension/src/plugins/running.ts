import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ITranslator } from '@jupyterlab/translation';

import { gpuIcon, releaseIcon } from '../icon';
import type { PanelModel } from '../model';
import { GPURunning } from '../shell/running';
import { CommandIDs, IGPUShareModel, PluginIDs, TRANSLATION_DOMAIN } from '../tokens';

export const runningPlugin: JupyterFrontEndPlugin<void> = {
  id: PluginIDs.running,
  description: 'Lists the notebooks that share the GPU in the sidebar of what runs.',
  autoStart: true,
  requires: [IGPUShareModel, ITranslator],
  optional: [IRunningSessionManagers],
  activate: (
    app: JupyterFrontEnd,
    model: PanelModel,
    translator: ITranslator,
    managers: IRunningSessionManagers | null
  ) => {
    managers?.add(
      new GPURunning({
        icon: gpuIcon,
        model,
        onOpen: path => void app.commands.execute(CommandIDs.openNotebook, { path }),
        releaseIcon,
        trans: translator.load(TRANSLATION_DOMAIN)
      })
    );
  }
};
