import { Token } from '@lumino/coreutils';

import type { PanelModel } from './model';

/** What the server knows of the GPUs, for other extensions too. */
export const IGPUShareModel = new Token<PanelModel>(
  '@jupyter-gpushare/labextension:IGPUShareModel',
  'Who has the GPU and who waits for it, kept up to date by the server.'
);

export namespace PluginIDs {
  export const model = '@jupyter-gpushare/labextension:model';
  export const waitLines = '@jupyter-gpushare/labextension:wait-lines';
  export const panel = '@jupyter-gpushare/labextension:plugin';
}

export namespace CommandIDs {
  export const openNotebook = 'gpushare:open-notebook';
  export const releaseTurn = 'gpushare:release-turn';
  export const showPanel = 'gpushare:show-panel';
}

/** The id of the panel in the page and in the saved layout. */
export const PANEL_ID = 'jp-gpushare-panel';

/** The schema of the events that tell of a change. */
export const CHANGED_SCHEMA_ID = 'urn:jupyter-gpushare:changed:v1';
