import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification as Toast } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, type TranslationBundle } from '@jupyterlab/translation';

import type { PanelModel } from '../model';
import { Claims } from '../shell/claims';
import { kernelIdOf } from '../shell/currentKernel';
import { Notices } from '../shell/notices';
import { formatServed, type IServed } from '../shell/served';
import type { GPUShareSettings } from '../shell/settings';
import {
  CommandIDs,
  IGPUShareModel,
  IGPUShareNotices,
  IGPUShareSettings,
  PluginIDs,
  TRANSLATION_DOMAIN
} from '../tokens';

/** A notification goes by itself; the bell in the status bar keeps it. */
const STAYS_MS = 15_000;

export const noticesPlugin: JupyterFrontEndPlugin<Notices> = {
  id: PluginIDs.notices,
  description: 'Tells the user that a notebook has the GPU.',
  autoStart: true,
  provides: IGPUShareNotices,
  requires: [IGPUShareModel, IGPUShareSettings, ITranslator],
  optional: [INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    model: PanelModel,
    settings: GPUShareSettings,
    translator: ITranslator,
    tracker: INotebookTracker | null
  ) => {
    const trans = translator.load(TRANSLATION_DOMAIN);
    return new Notices({
      claims: new Claims(() => window.localStorage),
      isHidden: () => document.hidden,
      isInView: kernelId =>
        tracker?.find(panel => panel.isVisible && kernelIdOf(panel) === kernelId) !== undefined,
      model,
      settings,
      tell: served => {
        tell(app, served, trans);
      }
    });
  }
};

function tell(app: JupyterFrontEnd, served: IServed, trans: TranslationBundle): void {
  const { path } = served.kernel;
  const message = formatServed(served, trans);
  const show = (): void => {
    void app.commands.execute(CommandIDs.openNotebook, { path });
  };
  const actions = path ? [{ label: trans.__('Show the notebook'), callback: show }] : [];
  Toast.emit(message, 'info', { actions, autoClose: STAYS_MS });
  // The browser's own, where the user has allowed it before. Nobody is asked.
  if (document.hidden && 'Notification' in window && Notification.permission === 'granted') {
    try {
      const shown = new Notification(message, { tag: served.wait.key });
      shown.onclick = () => {
        window.focus();
        if (path) {
          show();
        }
      };
    } catch {
      // Some browsers let only service workers show one.
    }
  }
}
