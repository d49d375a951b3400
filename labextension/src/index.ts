import { commandsPlugin } from './plugins/commands';
import { modelPlugin } from './plugins/model';
import { noticesPlugin } from './plugins/notices';
import { panelPlugin } from './plugins/panel';
import { runningPlugin } from './plugins/running';
import { settingsPlugin } from './plugins/settings';
import { statusPlugin } from './plugins/status';
import { waitLinesPlugin } from './plugins/waitLines';

export { PanelModel } from './model';
export { GPUShareSettings } from './shell/settings';
export * from './state';
export * from './tokens';

export default [
  modelPlugin,
  settingsPlugin,
  noticesPlugin,
  commandsPlugin,
  panelPlugin,
  runningPlugin,
  statusPlugin,
  waitLinesPlugin
];
