import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import { gpuIcon } from '../icon';
import type { PanelModel } from '../model';
import type { IKernel } from '../state';
import { CommandIDs, PANEL_ID } from '../tokens';
import { canNotify, canRelease } from './actions';
import type { CurrentKernel } from './currentKernel';
import type { Notices } from './notices';
import type { GPUShareSettings } from './settings';
import { formatHelp } from './words';

export interface ICommandOptions {
  readonly app: JupyterFrontEnd;
  readonly current: CurrentKernel;
  readonly model: PanelModel;
  readonly notices: Notices;
  readonly settings: GPUShareSettings;
  readonly trans: TranslationBundle;
}

type Arguments = Parameters<CommandRegistry.ICommandOptions['execute']>[0];

/** Adds all commands; answers those that a person can choose. */
export function addCommands(options: ICommandOptions): readonly string[] {
  const { app, current, model, notices, settings } = options;
  addViewCommands(options);
  addServerCommands(options);
  addKernelCommands(options);
  const notify = (): void => {
    app.commands.notifyCommandChanged();
  };
  model.changed.connect(notify);
  current.changed.connect(notify);
  settings.changed.connect(notify);
  notices.changed.connect(notify);
  return [
    CommandIDs.showPanel,
    CommandIDs.releaseTurn,
    CommandIDs.notifyWhenServed,
    CommandIDs.toggleStatusItem,
    CommandIDs.refresh,
    CommandIDs.showHelp
  ];
}

function addViewCommands({ app, settings, trans }: ICommandOptions): void {
  const { commands, shell } = app;
  commands.addCommand(CommandIDs.showPanel, {
    label: trans.__('Show the GPU queue'),
    caption: trans.__('Show who has the GPU and who waits for it'),
    icon: gpuIcon,
    execute: () => {
      shell.activateById(PANEL_ID);
    }
  });
  commands.addCommand(CommandIDs.openNotebook, {
    label: trans.__('Show a notebook'),
    execute: ({ path }) => (path ? commands.execute('docmanager:open', { path }) : undefined)
  });
  commands.addCommand(CommandIDs.toggleStatusItem, {
    label: trans.__('Show the GPU in the Status Bar'),
    caption: trans.__('Say whether the current notebook has the GPU or waits for it'),
    isToggleable: true,
    isToggled: () => settings.value.showStatusItem,
    execute: () => settings.set('showStatusItem', !settings.value.showStatusItem)
  });
}

function addServerCommands({ app, model, trans }: ICommandOptions): void {
  app.commands.addCommand(CommandIDs.refresh, {
    label: trans.__('Refresh the state of the GPU'),
    caption: trans.__('Ask the server now who has the GPU and who waits for it'),
    execute: () => model.refresh()
  });
  app.commands.addCommand(CommandIDs.showHelp, {
    label: trans.__('Help: is something wrong with the GPU?'),
    caption: trans.__('Say what is wrong with GPU sharing, and how to learn more'),
    execute: async () => {
      await showDialog({
        title: trans.__('GPU sharing'),
        body: formatHelp(model.snapshot, model.problem, trans),
        buttons: [Dialog.okButton()]
      });
    }
  });
}

/** Each is about the kernel with the given id, or else about that of the notebook in front. */
function addKernelCommands({ app, current, model, notices, trans }: ICommandOptions): void {
  const kernelOf = (args: Arguments): IKernel | undefined => {
    const kernelId = typeof args.kernelId === 'string' ? args.kernelId : current.id;
    return model.snapshot?.state.kernels.find(kernel => kernel.kernelId === kernelId);
  };
  app.commands.addCommand(CommandIDs.releaseTurn, {
    label: trans.__('Release the GPU'),
    caption: trans.__('Let the next in the queue have the GPU now'),
    isEnabled: args => canRelease(kernelOf(args)),
    execute: args => {
      const kernel = kernelOf(args);
      return kernel ? model.releaseTurn(kernel.kernelId) : undefined;
    }
  });
  app.commands.addCommand(CommandIDs.notifyWhenServed, {
    label: trans.__('Notify me when this cell gets the GPU'),
    caption: trans.__('Say so once, unless the notebook is in view'),
    isEnabled: args => canNotify(kernelOf(args)),
    isToggleable: true,
    isToggled: args => notices.isAsked(kernelOf(args)?.kernelId ?? ''),
    execute: args => {
      const kernel = kernelOf(args);
      if (kernel) {
        notices.toggle(kernel.kernelId);
      }
    }
  });
}
