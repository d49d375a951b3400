import { nullTranslator } from '@jupyterlab/translation';
import { act } from 'react';
import { createRoot, type Root } from 'react-dom/client';

import type { IAction } from '../client';
import { holdLengths, KernelActions } from '../kernelActions';
import { parseState } from '../state';
import { kernel, memory, state } from './support/states';

describe('KernelActions', () => {
  let page: HTMLElement;
  let root: Root;
  let acted: IAction[];

  beforeEach(() => {
    page = document.body.appendChild(document.createElement('div'));
    root = createRoot(page);
    acted = [];
  });

  afterEach(() => {
    act(() => {
      root.unmount();
    });
    page.remove();
  });

  function show(fields: object, props: Partial<KernelActions.IProps> = {}): void {
    const [shown] = parseState(state({ kernels: [kernel(fields)] })).kernels;
    if (!shown) {
      throw new Error('no kernel');
    }
    act(() => {
      root.render(
        <KernelActions
          actions={['release', 'hold', 'evict']}
          holdMaxS={600}
          kernel={shown}
          onAct={(_, action) => acted.push(action)}
          pending={null}
          trans={nullTranslator.load('jupyter_gpushare')}
          {...props}
        />
      );
    });
  }

  function press(text: string): void {
    const button = [...page.querySelectorAll('button')].find(each => each.textContent === text);
    if (!button) {
      throw new Error(`no button ${text} in ${page.innerHTML}`);
    }
    act(() => {
      button.click();
    });
  }

  it('keeps the GPU for a length up to the longest that is allowed', () => {
    show({});
    press('10 min');
    expect(acted).toEqual([{ kind: 'hold', seconds: 600 }]);
    expect(holdLengths(600)).toEqual([60, 300, 600]);
    expect(holdLengths(30)).toEqual([30]);
    expect(holdLengths(86_400)).toEqual([300, 900, 3600, 86_400]);
    expect(holdLengths(0)).toEqual([]);
  });

  it('ends what is kept, and what is to be kept at the next turn', () => {
    show({ state: 'holds', hold_left_s: 20 });
    press('End keeping');
    show({ state: 'idle', hold_to_come_s: 20 });
    press('End keeping');
    expect(acted).toEqual([
      { kind: 'hold', seconds: 0 },
      { kind: 'hold', seconds: 0 }
    ]);
  });

  it('says what freeing memory does, and asks before it does it', () => {
    show({ memory: [memory({ bytes_resident: 3 * 1024 ** 3, bytes_fixed: 1024 ** 3 })] });
    press('Free its GPU memory…');
    expect(acted).toEqual([]);
    expect(page.textContent).toContain('2.0 GiB move from the GPU to the machine’s own memory');
    expect(page.textContent).toContain('1.0 GiB cannot move');
    press('Cancel');
    press('Free its GPU memory…');
    press('Free it now');
    expect(acted).toEqual([{ kind: 'evict' }]);
  });

  it('asks for unused memory once, and only where there is memory', () => {
    const all = { actions: ['trim'] };
    show({ memory: [memory({ bytes_resident: 0, bytes_parked: 5 })] }, all);
    press('Give back unused GPU memory');
    expect(acted).toEqual([{ kind: 'trim' }]);
    show({ memory: [memory()], trim: { number: 1, stage: 'queued' } }, all);
    press('Give back unused GPU memory');
    expect(page.querySelector('[aria-disabled=true]')).not.toBeNull();
    expect(acted).toHaveLength(1);
    show({ memory: [memory()], trim: { number: 1, stage: 'done' } }, all);
    press('Give back unused GPU memory');
    expect(acted).toHaveLength(2);
    show({ memory: [memory({ bytes_resident: 0 })] }, all);
    expect(page.textContent).toBe('');
  });

  it('asks for nothing while something is asked already', () => {
    show({}, { pending: { kind: 'release' } });
    press('1 min');
    expect(acted).toEqual([]);
  });

  it('offers no more than the server passes on', () => {
    show({ memory: [memory()] }, { actions: ['release'] });
    expect(page.textContent).toBe('');
  });
});
