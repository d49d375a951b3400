import { nullTranslator } from '@jupyterlab/translation';
import { act } from 'react';
import { createRoot, type Root } from 'react-dom/client';

import type { IAction } from '../client';
import type { Problem } from '../model';
import { parseState } from '../state';
import { PanelView, type IPanelProps } from '../view';
import { device, holder, kernel, memory, state, waiter } from './support/states';

describe('PanelView', () => {
  let page: HTMLElement;
  let root: Root;
  let acted: [string, IAction][];
  let opened: string[];
  let retried: number;

  beforeEach(() => {
    jest.useFakeTimers({ now: 0 });
    page = document.body.appendChild(document.createElement('div'));
    root = createRoot(page);
    acted = [];
    opened = [];
    retried = 0;
  });

  afterEach(() => {
    act(() => {
      root.unmount();
    });
    page.remove();
    jest.useRealTimers();
  });

  function show(value: object | null, props: Partial<IPanelProps> = {}): void {
    act(() => {
      root.render(
        <PanelView
          actionProblem={() => null}
          onAct={(kernelId, action) => acted.push([kernelId, action])}
          onOpen={path => opened.push(path)}
          onRetry={() => {
            retried += 1;
          }}
          pendingAction={() => null}
          problem={null}
          snapshot={value && { state: parseState(value), receivedAtMs: Date.now() }}
          trans={nullTranslator.load('jupyter_gpushare')}
          {...props}
        />
      );
    });
  }

  function find(selector: string): HTMLElement {
    const found = page.querySelector<HTMLElement>(selector);
    if (!found) {
      throw new Error(`there is no ${selector} in ${page.innerHTML}`);
    }
    return found;
  }

  function texts(selector: string): string[] {
    return [...page.querySelectorAll(selector)].map(element => element.textContent);
  }

  it('shows each device with its memory, its holder and its queue in order', () => {
    const queue = [waiter(), waiter({ position: 2, name: 'b.ipynb', tenant_id: 't3', mine: true })];
    show(state({ devices: [device({ holder: holder(), queue })] }));
    expect(find('h3').textContent).toBe('Test GPU');
    expect(find('[role=meter]').getAttribute('aria-valuetext')).toBe('2.0 GiB of 8.0 GiB');
    expect(find('[role=meter]').getAttribute('aria-valuenow')).toBe('25');
    expect(find('.jp-gpushare-Holder').textContent).toBe('Nowtrain.ipynbyou5 s');
    expect(texts('ol > li')).toEqual(['1plot.ipynbbob3 s', '2b.ipynbyou3 s']);
  });

  it('tells what came of unused memory in the row, and to screen readers', () => {
    const trim = { number: 1, stage: 'runs' };
    show(state({ kernels: [kernel({ trim })] }));
    expect(texts('.jp-gpushare-Trim')).toEqual(['Giving back unused GPU memory…']);
    expect(find('[role=status]').textContent).toBe('');
    show(state({ kernels: [kernel({ trim: { ...trim, stage: 'done', bytes: 1024 ** 3 } })] }));
    expect(texts('.jp-gpushare-Trim')).toEqual(['1.0 GiB of unused GPU memory given back.']);
    expect(find('[role=status]').textContent).toBe(
      'train.ipynb: 1.0 GiB of unused GPU memory given back.'
    );
    show(state({ kernels: [kernel({ trim: { ...trim, stage: 'failed', message: '<b>No' } })] }));
    expect(texts('.jp-gpushare-Trim.jp-mod-problem')).toEqual(['<b>No']);
    show(state({ kernels: [kernel()] }));
    expect(texts('.jp-gpushare-Trim')).toEqual([]);
  });

  it('tells a hold that has not begun as one to come, and lets it be cancelled', () => {
    show(state({ devices: [device()], kernels: [kernel({ hold_to_come_s: 60 })] }));
    expect(texts('.jp-gpushare-Hold')).toEqual(['you keep it for 1 min once it has the GPU']);
    expect(texts('.jp-gpushare-Holder')).toEqual(['Free']);
    expect(find('.jp-gpushare-Release').textContent).toBe('Cancel');
    act(() => {
      find('.jp-gpushare-Release').click();
    });
    expect(acted).toEqual([['k1', { kind: 'release' }]]);
  });

  it('counts down how long a turn is kept by hand, for its holder and for its kernel', () => {
    show(
      state({
        devices: [device({ holder: holder({ hold_left_s: 600 }) })],
        kernels: [kernel({ state: 'holds', hold_left_s: 600 }), kernel({ kernel_id: 'k2' })]
      })
    );
    expect(texts('.jp-gpushare-Hold')).toEqual([
      'you keep it for 10 min more',
      'you keep it for 10 min more'
    ]);
    act(() => {
      jest.advanceTimersByTime(545_000);
    });
    expect(find('.jp-gpushare-Hold').textContent).toBe('you keep it for 55 s more');
    act(() => {
      jest.advanceTimersByTime(60_000);
    });
    expect(find('.jp-gpushare-Hold').textContent).toBe('you keep it for 0 s more');
  });

  it('tells a kernel that waits until when the turn is kept, by the clock', () => {
    const kept = device({ holder: holder({ hold_left_s: 600 }), queue: [waiter()] });
    const waiting = kernel({ tenant_id: 't2', state: 'waits', position: 1, reason: 'It is busy.' });
    show(state({ devices: [kept], kernels: [waiting] }));
    const until = new Date(600_000).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
    expect(find('.jp-gpushare-Reason').textContent).toBe(
      `It is busy. Its user has reserved the GPU until ${until}.`
    );
  });

  it('tells a kernel that waits when it starts, which comes nearer', () => {
    const wait = { earliest_s: 10, latest_s: 40, used_s: 0, share: 0.5 };
    show(state({ kernels: [kernel({ state: 'waits', position: 2, wait })] }));
    expect(find('.jp-gpushare-Wait').textContent).toBe('starts in about 10–40 s');
    act(() => {
      jest.advanceTimersByTime(5000);
    });
    expect(find('.jp-gpushare-Wait').textContent).toBe('starts in about 5–35 s');
  });

  it('shows whose the memory is, and what of mine is parked and fixed', () => {
    const gib = 1024 ** 3;
    const mine = memory({ bytes_parked: 12 * gib, bytes_fixed: gib / 2, cap_bytes: 40 * gib });
    show(
      state({
        devices: [device({ bytes_tenants: 1.5 * gib, bytes_foreign: gib / 2 })],
        kernels: [kernel({ memory: [mine] })]
      })
    );
    expect(texts('.jp-gpushare-Shares > li')).toEqual([
      'mine 1.0 GiB',
      'others 512 MiB',
      'other programs 512 MiB'
    ]);
    const widths = [...page.querySelectorAll<HTMLElement>('.jp-gpushare-Share')];
    expect(widths.map(share => share.style.width)).toEqual(['12.5%', '6.25%', '6.25%']);
    expect(find('.jp-gpushare-KernelMemory').textContent).toBe(
      '1.0 GiB on the GPU ·\u00a012 GiB in host memory ·\u00a0cannot move 512 MiB ·\u00a0limit 40 GiB'
    );
  });

  it('names the device with the memory of a kernel that uses several', () => {
    const twin = 'ff'.repeat(16);
    const of = (...ids: string[]): object[] => ids.map(id => memory({ device: id }));
    show(
      state({
        devices: [device(), device({ id: twin, name: 'Other GPU' })],
        kernels: [kernel({ memory: of('0123456789abcdef0123456789abcdef', twin, 'ab'.repeat(16)) })]
      })
    );
    expect(texts('.jp-gpushare-KernelMemory bdi')).toEqual([
      'Test GPU: ',
      'Other GPU: ',
      'abababab: '
    ]);
  });

  it('tells devices of one name apart', () => {
    show(state({ devices: [device(), device({ id: 'ff'.repeat(16) })] }));
    expect(texts('h3')).toEqual(['Test GPUGPU-01234567', 'Test GPUGPU-ffffffff']);
  });

  it('lets times go on by themselves', () => {
    show(state({ devices: [device({ holder: holder({ held_s: 58 }) })] }));
    act(() => {
      jest.advanceTimersByTime(3000);
    });
    expect(find('.jp-gpushare-Elapsed').textContent).toBe('1 min');
  });

  it('shows a free device, and one that changes hands', () => {
    show(state());
    expect(find('.jp-gpushare-Holder').textContent).toBe('Free');
    show(state({ devices: [device({ queue: [waiter()] })] }));
    expect(find('.jp-gpushare-Holder').textContent).toBe('Changing hands…');
  });

  it('shows names as text, whatever is in them', () => {
    const name = '<img src=x onerror=alert(1)> <b>Zoë</b>';
    show(state({ devices: [device({ holder: holder({ name, owner: name, mine: false }) })] }));
    expect(page.querySelector('img, b')).toBeNull();
    expect(find('.jp-gpushare-TenantName').textContent).toBe(name);
  });

  it('offers the release to kernels that hold, and to no others', () => {
    const kernels = ['holds', 'waits', 'idle', 'unshared', 'failed'].map(name =>
      kernel({ kernel_id: name, state: name })
    );
    show(state({ kernels }));
    expect(texts('.jp-gpushare-Release')).toEqual(['Release']);
    act(() => {
      find('.jp-gpushare-Release').click();
    });
    expect(acted).toEqual([['holds', { kind: 'release' }]]);
  });

  it('names the kernel in the label of its button', () => {
    show(state({ kernels: [kernel({ state: 'holds' })] }));
    const label = find('.jp-gpushare-Release').getAttribute('aria-label');
    expect(label).toBe('Release the turn of train.ipynb');
  });

  it('does not release twice while the first is under way', () => {
    show(state({ kernels: [kernel({ state: 'holds' })] }), {
      pendingAction: () => ({ kind: 'release' })
    });
    act(() => {
      find('.jp-gpushare-Release').click();
    });
    expect(acted).toEqual([]);
    expect(find('.jp-gpushare-Release').getAttribute('aria-disabled')).toBe('true');
  });

  it('keeps the keyboard in the row when the button goes', () => {
    show(state({ kernels: [kernel({ state: 'holds' })] }));
    find('.jp-gpushare-Release').focus();
    show(state({ kernels: [kernel({ state: 'idle' })] }));
    expect(document.activeElement).toBe(find('.jp-gpushare-Kernel'));
  });

  it('keeps the keyboard in the list when a row goes with its kernel', () => {
    show(state({ kernels: [kernel({ state: 'holds' }), kernel({ kernel_id: 'k2' })] }));
    find('.jp-gpushare-Release').focus();
    show(state({ kernels: [kernel({ kernel_id: 'k2' })] }));
    expect(document.activeElement).toBe(find('#jp-gpushare-kernels'));
    expect(find('[role=status]').textContent).toBe('A kernel has ended');
  });

  it('leads to the notebook of a kernel', () => {
    show(state({ kernels: [kernel()] }));
    act(() => {
      find('.jp-gpushare-Link').click();
    });
    expect(opened).toEqual(['work/train.ipynb']);
  });

  it('tells why a release failed', () => {
    const problem: Problem = { kind: 'refused', message: 'It does not hold. Wait.' };
    show(state({ kernels: [kernel()] }), { actionProblem: () => problem });
    expect(find('[role=alert]').textContent).toBe('It does not hold. Wait.');
  });

  it('shows one sentence and no data where the versions differ', () => {
    show(null, { problem: { kind: 'version', theirs: '2' } });
    expect(texts('.jp-gpushare-Notice')).toHaveLength(1);
    expect(page.querySelector('section')).toBeNull();
  });

  it.each([
    ['down', '', 'The scheduler is down'],
    ['starting', '', 'The scheduler is starting'],
    ['down', 'No disk. Free some.', 'No disk. Free some.']
  ])('says that the scheduler is %s (%p)', (scheduler, message, text) => {
    show(state({ scheduler, message, devices: [] }));
    expect(find('.jp-gpushare-Notice').textContent).toContain(text);
    expect(find('.jp-gpushare-Empty').textContent).toContain('without the scheduler');
  });

  it('offers another try while no scheduler answers, with what to do', () => {
    show(state({ scheduler: 'down', message: 'No scheduler answers.', devices: [] }));
    expect(find('.jp-gpushare-Notice').textContent).toContain('jupyter gpushare doctor');
    act(() => {
      find('.jp-gpushare-Notice button').click();
    });
    expect(retried).toBe(1);
  });

  it('shows what is left of a turn while others wait, when they start and why they wait', () => {
    const wait = { earliest_s: 20, latest_s: 45, used_s: 0, share: 0.5 };
    const queue = [waiter({ wait, why: 'Its memory has to move first.', runs_as: 'batch' })];
    show(state({ devices: [device({ holder: holder({ turn_left_s: 11.5 }), queue })] }));
    expect(find('.jp-gpushare-Hold').textContent).toBe('at most 12 s left');
    expect(texts('.jp-gpushare-Expected')).toEqual([
      'starts in about 20–45 s',
      'Its memory has to move first.'
    ]);
    expect(find('.jp-gpushare-Class').textContent).toBe('batch');
    show(state({ devices: [device({ holder: holder({ turn_left_s: 11.5 }) })] }));
    expect(page.querySelector('.jp-gpushare-Hold')).toBeNull();
  });

  it('keeps the room of the longest words while figures count', () => {
    const held = holder({ turn_left_s: 100, mine: false });
    const wait = { earliest_s: 20, latest_s: 45, used_s: 0, share: 0.5 };
    const longest = (): (string | undefined)[] =>
      ['.jp-gpushare-Hold', '.jp-gpushare-Expected'].map(
        line => find(`${line} > .jp-gpushare-Counting`).dataset.longest
      );
    show(state({ devices: [device({ holder: held, queue: [waiter({ wait })] })] }));
    const room = longest();
    expect(room).toEqual(['at most 01 min left', 'starts in about 20–45 s']);
    act(() => {
      jest.advanceTimersByTime(101_000);
    });
    expect(find('.jp-gpushare-Hold').textContent).toBe('');
    expect(find('.jp-gpushare-Expected').textContent).toBe('starts in a moment');
    expect(longest()).toEqual(room);
  });

  it('says of a notebook which class it runs as, where that is not the usual one', () => {
    const usual = kernel({ runs_as: 'interactive' });
    show(state({ kernels: [usual, kernel({ kernel_id: 'k2', runs_as: 'batch' })] }));
    expect(texts('.jp-gpushare-Kernel .jp-gpushare-Class')).toEqual(['batch']);
  });

  it('has one bar with a part for each tenant, and names those whom the reader may know', () => {
    const gib = 1024 ** 3;
    const tenants = [
      { name: 'a.ipynb', owner: 'alice', mine: true, tenant_id: 'a', bytes_resident: gib },
      { name: '<b>x</b>', owner: 'bob', tenant_id: 'b', bytes_resident: 2 * gib },
      { name: 'another user', owner: 'another user', tenant_id: 'o1', bytes_resident: gib }
    ];
    const bytes = { bytes_used: 4 * gib, bytes_tenants: 4 * gib, bytes_foreign: 0 };
    const mine = [kernel({ memory: [memory({ bytes_resident: gib })] })];
    show(state({ devices: [device({ ...bytes, tenants })], kernels: mine }));
    expect(page.querySelectorAll('.jp-gpushare-Share')).toHaveLength(3);
    expect(texts('.jp-gpushare-ShareText')).toEqual([
      'mine 1.0 GiB',
      'bob: <b>x</b> 2.0 GiB',
      'others 1.0 GiB'
    ]);
  });

  it('says that a GPU is simulated, and that others use one from outside the sharing', () => {
    const outside = { bytes_used: 5 * 1024 ** 3, bytes_foreign: 5 * 1024 ** 3, simulated: true };
    show(state({ devices: [device(outside)] }));
    expect(page.textContent).toContain('This GPU is simulated');
    expect(find('.jp-gpushare-Device .jp-gpushare-Notice').textContent).toContain('use 5.0 GiB');
  });

  it('shows a grey bar alone where sharing is switched off, without advice', () => {
    const message = 'Your administrator has switched GPU sharing off.';
    const kernels = [kernel({ state: 'unshared', reason: message })];
    show(state({ scheduler: 'off', message, devices: [], kernels }));
    expect(texts('.jp-gpushare-Notice.jp-mod-off')).toEqual([
      `${message} Notebooks use the GPU like any other program.`
    ]);
    expect(page.querySelector('section')).toBeNull();
    show(null, { problem: { kind: 'not-installed' } });
    expect(find('.jp-mod-off').textContent).toContain('switched off on this Jupyter server');
    expect(page.querySelector('.jp-mod-problem')).toBeNull();
  });

  it('tells screen readers what changes for my kernels, and not what stands there at first', () => {
    show(state({ kernels: [kernel({ state: 'waits', position: 1 })] }));
    expect(find('[role=status]').textContent).toBe('');
    show(state({ kernels: [kernel({ state: 'holds' })] }));
    expect(find('[role=status]').textContent).toBe('train.ipynb: Has the GPU');
  });

  it('says so when a device is lost', () => {
    show(state({ devices: [device({ lost: true })] }));
    expect(find('.jp-gpushare-Device .jp-gpushare-Notice').textContent).toContain(
      'no longer answers'
    );
    expect(page.querySelector('[role=meter]')).toBeNull();
  });

  it.each([
    ['paused', 'Paused by an administrator'],
    ['drained', 'Drained by an administrator']
  ])('says so when a device is %s', (mode, words) => {
    show(state({ devices: [device({ mode })] }));
    expect(find('.jp-gpushare-Mode').textContent).toContain(words);
    show(state({ devices: [device({ mode: 'open' })] }));
    expect(page.querySelector('.jp-gpushare-Mode')).toBeNull();
  });

  it('says who is frozen', () => {
    show(
      state({
        devices: [device({ holder: holder({ frozen: true }) })],
        kernels: [kernel({ state: 'holds', frozen: true })]
      })
    );
    expect(find('.jp-gpushare-Device .jp-gpushare-Hold').textContent).toContain('Frozen');
    expect(find('.jp-gpushare-Badge').textContent).toBe('Has the GPU, frozen');
  });

  it('says where a kernel was placed', () => {
    show(state({ kernels: [kernel({ placement: 'Placed on GPU 1: needs 20 GiB.' })] }));
    expect(find('.jp-gpushare-Kernel').textContent).toContain('Placed on GPU 1: needs 20 GiB.');
  });
});
