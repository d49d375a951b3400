import { nullTranslator } from '@jupyterlab/translation';
import { act } from 'react';
import { createRoot, type Root } from 'react-dom/client';

import { Glance } from '../shell/glance';
import { parseState } from '../state';
import { device, holder, kernel, state } from './support/states';

describe('Glance', () => {
  let page: HTMLElement;
  let root: Root;
  let opened: number;

  beforeEach(() => {
    jest.useFakeTimers({ now: 0 });
    page = document.body.appendChild(document.createElement('div'));
    root = createRoot(page);
    opened = 0;
  });

  afterEach(() => {
    act(() => {
      root.unmount();
    });
    page.remove();
    jest.useRealTimers();
  });

  function show(name: string, props: Partial<Glance.IProps> = {}): void {
    const devices = [device({ holder: name === 'holds' ? holder({ held_s: 5 }) : null })];
    const told = parseState(state({ devices, kernels: [kernel({ state: name })] }));
    act(() => {
      root.render(
        <Glance
          kernelId="k1"
          onOpen={() => (opened += 1)}
          problem={null}
          snapshot={{ state: told, receivedAtMs: Date.now() }}
          trans={nullTranslator.load('jupyter_gpushare')}
          {...props}
        />
      );
    });
  }

  it('counts while the kernel has the GPU or waits for it, and runs no timer else', () => {
    show('idle');
    expect(page.textContent).toBe('GPU free');
    expect(jest.getTimerCount()).toBe(0);
    show('holds');
    expect(page.textContent).toBe('GPU 5 s');
    act(() => {
      jest.advanceTimersByTime(2000);
    });
    expect(page.textContent).toBe('GPU 7 s');
    show('waits');
    expect(jest.getTimerCount()).toBe(1);
    for (const name of ['idle', 'unshared', 'failed']) {
      show(name);
      expect(jest.getTimerCount()).toBe(0);
    }
  });

  it('counts nothing while the server does not answer', () => {
    show('holds', { problem: { kind: 'unreachable' } });
    expect(page.textContent).toBe('GPU ?');
    expect(jest.getTimerCount()).toBe(0);
  });

  it('is a button to the panel, with a name in words', () => {
    show('idle');
    const button = page.querySelector('button');
    expect(button?.getAttribute('aria-label')).toContain('does not use it now.');
    button?.click();
    expect(opened).toBe(1);
  });

  it('says that there is no GPU, and why', () => {
    const told = parseState(state({ devices: [], no_gpu: 'There is no driver. Install it.' }));
    show('idle', { snapshot: { state: told, receivedAtMs: 0 } });
    expect(page.textContent).toBe('No GPU');
    expect(page.querySelector('button')?.title).toMatch(/^There is no driver\. Install it\. .*try/);
  });

  it('shows nothing where nothing is shared', () => {
    show('idle', { snapshot: null, problem: { kind: 'not-installed' } });
    expect(page.textContent).toBe('');
  });
});
