import { modelPlugin, panelPlugin, waitLinesPlugin } from './plugin';

export { PanelModel } from './model';
export * from './state';
export * from './tokens';

export default [modelPlugin, panelPlugin, waitLinesPlugin];
