import { Token } from '@lumino/coreutils';

import type { PanelModel } from './model';
import type { Notices } from './shell/notices';
import type { GPUShareSettings } from './shell/settings';

/** What the server knows of the GPUs, for other extensions too. */
export const IGPUShareModel = new Token<PanelModel>(
  '@jupyter-gpushare/labextension:IGPUShareModel',
  'Who has the GPU and who waits for it, kept up to date by the server.'
);

/** What the user has chosen to see of it. */
export const IGPUShareSettings = new Token<GPUShareSettings>(
  '@jupyter-gpushare/labextension:IGPUShareSettings',
  'What is shown of the GPU outside the panel.'
);

/** Who wants to be told that a wait has ended. */
export const IGPUShareNotices = new Token<Notices>(
  '@jupyter-gpushare/labextension:IGPUShareNotices',
  'Tells the user that a notebook has the GPU.'
);

export namespace PluginIDs {
  export const badges = '@jupyter-gpushare/labextension:badges';
  export const commands = '@jupyter-gpushare/labextension:commands';
  export const model = '@jupyter-gpushare/labextension:model';
  export const notices = '@jupyter-gpushare/labextension:notices';
  /** The schema of the settings has the name of this one. */
  export const panel = '@jupyter-gpushare/labextension:plugin';
  export const running = '@jupyter-gpushare/labextension:running';
  export const settings = '@jupyter-gpushare/labextension:settings';
  export const status = '@jupyter-gpushare/labextension:status';
  export const waitLines = '@jupyter-gpushare/labextension:wait-lines';
}

export namespace CommandIDs {
  export const endHold = 'gpushare:end-hold';
  export const evictMemory = 'gpushare:evict-memory';
  export const holdTurn = 'gpushare:hold-turn';
  export const notifyWhenServed = 'gpushare:notify-when-served';
  export const openNotebook = 'gpushare:open-notebook';
  export const refresh = 'gpushare:refresh-state';
  export const releaseTurn = 'gpushare:release-turn';
  export const showHelp = 'gpushare:show-help';
  export const showPanel = 'gpushare:show-panel';
  export const toggleStatusItem = 'gpushare:toggle-status-item';
  export const trimMemory = 'gpushare:trim-memory';
}

/** The id of the panel in the page and in the saved layout. */
export const PANEL_ID = 'jp-gpushare-panel';

/** The domain of the translations. */
export const TRANSLATION_DOMAIN = 'jupyter_gpushare';

/** The schema of the events that tell of a change. */
export const CHANGED_SCHEMA_ID = 'urn:jupyter-gpushare:changed:v1';
