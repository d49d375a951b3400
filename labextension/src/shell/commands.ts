import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import { gpuIcon } from '../icon';
import type { PanelModel } from '../model';
import type { IKernel } from '../state';
import { CommandIDs, PANEL_ID } from '../tokens';
import type { CurrentKernel } from './currentKernel';
import type { GPUShareSettings } from './settings';

export interface ICommandOptions {
  readonly app: JupyterFrontEnd;
  readonly current: CurrentKernel;
  readonly model: PanelModel;
  readonly settings: GPUShareSettings;
  readonly trans: TranslationBundle;
}

type Arguments = Parameters<CommandRegistry.ICommandOptions['execute']>[0];

/** Adds all commands; answers those that a person can choose. */
export function addCommands(options: ICommandOptions): readonly string[] {
  const { app, current, model, settings } = options;
  addViewCommands(options);
  addKernelCommands(options);
  const notify = (): void => {
    app.commands.notifyCommandChanged();
  };
  model.changed.connect(notify);
  current.changed.connect(notify);
  settings.changed.connect(notify);
  return [CommandIDs.showPanel, CommandIDs.releaseTurn, CommandIDs.toggleStatusItem];
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

function addKernelCommands({ app, current, model, trans }: ICommandOptions): void {
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
}

/** It has a turn, or has reserved its next one. */
export function canRelease(kernel: IKernel | undefined): boolean {
  return kernel !== undefined && (kernel.state === 'holds' || kernel.holdToComeS > 0);
}
