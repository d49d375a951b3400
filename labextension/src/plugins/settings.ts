import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';

import { GPUShareSettings } from '../shell/settings';
import { IGPUShareSettings, PluginIDs } from '../tokens';

export const settingsPlugin: JupyterFrontEndPlugin<GPUShareSettings> = {
  id: PluginIDs.settings,
  description: 'Knows what the user has chosen to see of the GPU.',
  autoStart: true,
  provides: IGPUShareSettings,
  optional: [ISettingRegistry],
  activate: (_, registry: ISettingRegistry | null) => {
    const settings = new GPUShareSettings();
    // Without the schema (an installation that is not complete) the defaults count.
    registry?.load(PluginIDs.panel).then(
      stored => {
        settings.follow(stored);
      },
      () => undefined
    );
    return settings;
  }
};
