import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, InputDialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import { formatDuration, formatKernel } from '../format';
import { gpuIcon } from '../icon';
import { explainEvict, explainTrim, holdLengths } from '../kernelActions';
import type { PanelModel } from '../model';
import type { IKernel } from '../state';
import { CommandIDs, PANEL_ID } from '../tokens';
import { trim } from '../trims';
import { canNotify, canPerform, canRelease, canTrim, hasMemory, isKept } from './actions';
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

/** The bell in the status bar keeps it. */
const TOLD_MS = 15_000;

type Arguments = Parameters<CommandRegistry.ICommandOptions['execute']>[0];

/** Adds all commands; answers those that a person can choose. */
export function addCommands(options: ICommandOptions): readonly string[] {
  const { app, current, model, notices, settings } = options;
  addViewCommands(options);
  addServerCommands(options);
  addKernelCommands(options);
  addHoldCommands(options);
  addTrimCommand(options);
  addEvictCommand(options);
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
    CommandIDs.holdTurn,
    CommandIDs.endHold,
    CommandIDs.trimMemory,
    CommandIDs.evictMemory,
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
  const kernelOf = lookup({ current, model });
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

/** Finds the kernel with the given id, or else that of the notebook in front. */
function lookup({
  current,
  model
}: Pick<ICommandOptions, 'current' | 'model'>): (args: Arguments) => IKernel | undefined {
  return args => {
    const kernelId = typeof args.kernelId === 'string' ? args.kernelId : current.id;
    return model.snapshot?.state.kernels.find(kernel => kernel.kernelId === kernelId);
  };
}

function addHoldCommands({ app, current, model, trans }: ICommandOptions): void {
  const kernelOf = lookup({ current, model });
  const lengths = (): readonly number[] => holdLengths(model.snapshot?.state.holdMaxS ?? 0);
  app.commands.addCommand(CommandIDs.holdTurn, {
    label: trans.__('Keep the GPU for…'),
    caption: trans.__('Keep the GPU between cells for a while, although others wait'),
    isEnabled: args =>
      canPerform(kernelOf(args), model.snapshot?.state, 'hold') && lengths().length > 0,
    execute: async args => {
      const kernel = kernelOf(args);
      const choices = new Map(lengths().map(each => [formatDuration(each, trans), each]));
      const { value } = await InputDialog.getItem({
        title: trans.__('Keep the GPU between cells for'),
        items: [...choices.keys()]
      });
      const seconds = choices.get(value ?? '');
      if (kernel && seconds !== undefined) {
        await model.perform(kernel.kernelId, { kind: 'hold', seconds });
      }
    }
  });
  app.commands.addCommand(CommandIDs.endHold, {
    label: trans.__('End keeping the GPU'),
    caption: trans.__('The turn goes on, and ends with its cell again'),
    isEnabled: args => {
      const kernel = kernelOf(args);
      return isKept(kernel) && canPerform(kernel, model.snapshot?.state, 'hold');
    },
    execute: async args => {
      const kernel = kernelOf(args);
      if (kernel) {
        await model.perform(kernel.kernelId, { kind: 'hold', seconds: 0 });
      }
    }
  });
}

/** Whoever chooses it may not see the panel, so a notification tells what came of it. */
function addTrimCommand({ app, current, model, trans }: ICommandOptions): void {
  const kernelOf = lookup({ current, model });
  app.commands.addCommand(CommandIDs.trimMemory, {
    label: trans.__('Give back unused GPU memory of this notebook'),
    caption: explainTrim(trans),
    isEnabled: args => canTrim(kernelOf(args), model.snapshot?.state),
    execute: async args => {
      const kernel = kernelOf(args);
      const told = kernel && (await trim(model, kernel.kernelId, trans));
      if (told) {
        const message = `\u2068${formatKernel(kernel)}\u2069: ${told.text}`;
        Notification.emit(message, told.failed ? 'error' : 'info', { autoClose: TOLD_MS });
      }
    }
  });
}

function addEvictCommand({ app, current, model, trans }: ICommandOptions): void {
  const kernelOf = lookup({ current, model });
  app.commands.addCommand(CommandIDs.evictMemory, {
    label: trans.__('Free GPU memory of this notebook…'),
    caption: trans.__('Its memory leaves the GPU until its next turn'),
    isEnabled: args => {
      const kernel = kernelOf(args);
      return hasMemory(kernel) && canPerform(kernel, model.snapshot?.state, 'evict');
    },
    execute: async args => {
      const kernel = kernelOf(args);
      if (!kernel) {
        return;
      }
      const { button } = await showDialog({
        title: trans.__('Free its GPU memory?'),
        body: explainEvict(kernel, trans),
        buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__('Free it now') })]
      });
      if (button.accept) {
        await model.perform(kernel.kernelId, { kind: 'evict' });
      }
    }
  });
}
