import { commandsPlugin } from './plugins/commands';
import { modelPlugin } from './plugins/model';
import { panelPlugin } from './plugins/panel';
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
  commandsPlugin,
  panelPlugin,
  statusPlugin,
  waitLinesPlugin
];
