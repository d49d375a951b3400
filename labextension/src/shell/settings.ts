import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { Signal, type ISignal } from '@lumino/signaling';

export const NOTIFY_WHEN = ['never', 'long-waits', 'always'] as const;
export type NotifyWhen = (typeof NOTIFY_WHEN)[number];

/** What a user may choose; `schema/plugin.json` says the same to the settings editor. */
export interface ISettings {
  readonly showStatusItem: boolean;
  readonly showBadges: boolean;
  readonly showWaitLine: boolean;
  readonly waitLineAfterMs: number;
  readonly notifyWhenServed: NotifyWhen;
  readonly notifyAfterS: number;
}

export const DEFAULTS: ISettings = {
  showStatusItem: true,
  showBadges: true,
  showWaitLine: true,
  waitLineAfterMs: 300,
  notifyWhenServed: 'long-waits',
  notifyAfterS: 60
};

/** Values of another version, or none, read as the defaults. */
export function settingsFrom(values: Readonly<Record<string, unknown>>): ISettings {
  const flag = (name: 'showStatusItem' | 'showBadges' | 'showWaitLine'): boolean => {
    const value = values[name];
    return typeof value === 'boolean' ? value : DEFAULTS[name];
  };
  const amount = (name: 'waitLineAfterMs' | 'notifyAfterS'): number => {
    const value = values[name];
    return typeof value === 'number' && value >= 0 ? value : DEFAULTS[name];
  };
  return {
    showStatusItem: flag('showStatusItem'),
    showBadges: flag('showBadges'),
    showWaitLine: flag('showWaitLine'),
    waitLineAfterMs: amount('waitLineAfterMs'),
    notifyWhenServed:
      NOTIFY_WHEN.find(name => name === values.notifyWhenServed) ?? DEFAULTS.notifyWhenServed,
    notifyAfterS: amount('notifyAfterS')
  };
}

/** The settings as they are now: the defaults until the registry has told them. */
export class GPUShareSettings {
  get value(): ISettings {
    return this._value;
  }

  get changed(): ISignal<this, undefined> {
    return this._changed;
  }

  /** From now on these count, and each change of them. */
  follow(stored: ISettingRegistry.ISettings): void {
    this._stored = stored;
    stored.changed.connect(this._read, this);
    this._read();
  }

  /** Changes one for good; where nothing can be stored, until the page is left. */
  async set<Name extends keyof ISettings>(name: Name, value: ISettings[Name]): Promise<void> {
    if (this._stored) {
      await this._stored.set(name, value);
      return;
    }
    this._value = { ...this._value, [name]: value };
    this._changed.emit(undefined);
  }

  private _read(): void {
    this._value = settingsFrom(this._stored?.composite ?? {});
    this._changed.emit(undefined);
  }

  private readonly _changed = new Signal<this, undefined>(this);
  private _stored: ISettingRegistry.ISettings | null = null;
  private _value = DEFAULTS;
}
