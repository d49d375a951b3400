import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { StateClient } from '../client';
import { openEventStream } from '../eventStream';
import { StateFeed } from '../feed';
import { PanelModel } from '../model';
import { IGPUShareModel, PluginIDs } from '../tokens';

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
