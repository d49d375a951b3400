import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { Signal } from '@lumino/signaling';

import schema from '../../schema/plugin.json';
import { DEFAULTS, GPUShareSettings, NOTIFY_WHEN, settingsFrom } from '../shell/settings';

/** What the registry keeps of one plugin. */
class FakeStored {
  composite: Record<string, unknown> = {};
  readonly changed = new Signal<this, undefined>(this);

  set(name: string, value: unknown): Promise<void> {
    this.composite = { ...this.composite, [name]: value };
    this.changed.emit(undefined);
    return Promise.resolve();
  }
}

describe('settings', () => {
  it('have the defaults that the settings editor shows', () => {
    const shown = Object.entries(schema.properties).map(([name, each]) => [name, each.default]);
    expect(Object.fromEntries(shown)).toEqual(DEFAULTS);
    const choices = schema.properties.notifyWhenServed.oneOf.map(each => each.const);
    expect(choices).toEqual([...NOTIFY_WHEN]);
  });

  it('read values that they do not know as the defaults', () => {
    expect(settingsFrom({})).toEqual(DEFAULTS);
    const strange = { showBadges: 'no', notifyAfterS: -1, notifyWhenServed: 'weekly', newer: 1 };
    expect(settingsFrom(strange)).toEqual(DEFAULTS);
  });

  it('take each change at once', async () => {
    const settings = new GPUShareSettings();
    const told: boolean[] = [];
    settings.changed.connect(() => told.push(settings.value.showBadges));
    const stored = new FakeStored();
    settings.follow(stored as unknown as ISettingRegistry.ISettings);
    await stored.set('showBadges', false);
    await settings.set('notifyAfterS', 5);
    expect(told).toEqual([true, false, false]);
    expect(stored.composite).toEqual({ showBadges: false, notifyAfterS: 5 });
    expect(settings.value).toEqual({ ...DEFAULTS, showBadges: false, notifyAfterS: 5 });
  });

  it('can be changed for this page where nothing can be stored', async () => {
    const settings = new GPUShareSettings();
    await settings.set('showStatusItem', false);
    expect(settings.value).toEqual({ ...DEFAULTS, showStatusItem: false });
  });
});
