/** How the panel words what it shows: pure functions from values to texts. */

import type { TranslationBundle } from '@jupyterlab/translation';

import type { Problem } from './model';
import type { IRestore } from './restores';
import {
  STATE_VERSION,
  UNNAMED,
  type IDevice,
  type IHolder,
  type IKernel,
  type IState,
  type ITenant,
  type IWait
} from './state';

const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Three digits are enough to compare by: `812 MiB`, `3.2 GiB`, `40 GiB`. */
export function formatBytes(bytes: number): string {
  let amount = bytes;
  let unit = 0;
  // 1023.5 would be rounded to 1024 of its unit, which is one of the next.
  while (amount >= 1023.5 && unit < BYTE_UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  const digits = unit > 0 && amount < 9.95 ? 1 : 0;
  return `${amount.toFixed(digits)} ${BYTE_UNITS[unit] ?? ''}`;
}

/** Whole seconds up to a minute, whole minutes up to an hour, then hours and minutes. */
export function formatDuration(seconds: number, trans: TranslationBundle): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) {
    return trans.__('%1 s', whole);
  }
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) {
    return trans.__('%1 min', minutes);
  }
  return trans.__('%1 h %2 min', Math.floor(minutes / 60), minutes % 60);
}

/** A countdown that goes on in the panel. */
export function formatHold(leftS: number, mine: boolean, trans: TranslationBundle): string {
  const left = formatDuration(leftS, trans);
  return mine
    ? trans.__('you keep it for %1 more', left)
    : trans.__('reserved by its user for %1 more', left);
}

/** A hold that begins with the kernel's next turn. */
export function formatHoldToCome(lengthS: number, trans: TranslationBundle): string {
  return trans.__('you keep it for %1 once it has the GPU', formatDuration(lengthS, trans));
}

/** The same with a time of day, as the reader's clock shows it, to plan with. */
export function formatHoldUntil(untilMs: number, trans: TranslationBundle): string {
  const until = new Date(untilMs).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
  return trans.__('Its user has reserved the GPU until %1.', until);
}

/** When a cell starts, or goes on where it is paused: `starts in about 10–40 s`. */
export function formatWait(wait: IWait, sinceS: number, trans: TranslationBundle): string {
  const range =
    wait.earliestS === null || wait.latestS === null
      ? null
      : formatRange(wait.earliestS - sinceS, wait.latestS - sinceS, trans);
  if (wait.usedS <= 0) {
    return range ? trans.__('starts in %1', range) : trans.__('nobody can say when it starts');
  }
  const paused = trans.__('paused after %1', formatRounded(wait.usedS, trans));
  const goesOn = range ? trans.__('goes on in %1', range) : trans.__('nobody can say until when');
  const share = isAllMine(wait) ? '' : trans.__('its share is %1', formatPart(wait.share, trans));
  return [`${paused}, ${goesOn}`, share].filter(Boolean).join('; ');
}

/** Only notebooks of the same user are ahead, so that the share is no news. */
function isAllMine(wait: IWait): boolean {
  return wait.share > 0.995;
}

/** The line at a cell that waits: the place, when it starts, what is in the way, how to end it. */
export function formatWaitLine(
  kernel: IKernel,
  devices: readonly IDevice[],
  sinceS: number,
  trans: TranslationBundle
): string {
  const queued = devices.filter(device =>
    device.queue.some(waiter => kernel.tenantId !== '' && waiter.tenantId === kernel.tenantId)
  );
  if (kernel.wait && kernel.wait.usedS > 0) {
    return [formatPaused(kernel.wait, sinceS, trans), kernel.blocked].filter(Boolean).join(' ');
  }
  const holder = queued.find(device => device.holder)?.holder;
  const me = queued.flatMap(device => device.queue).find(each => each.tenantId === kernel.tenantId);
  return [
    formatPlace(kernel, queued, sinceS, trans),
    holder ? formatInTheWay(holder, me?.owner ?? '', sinceS, trans) : '',
    kernel.blocked,
    trans.__('Interrupt the kernel to cancel.')
  ]
    .filter(Boolean)
    .join(' ');
}

/** The line at a cell that has its turn, until its memory is back. */
export function formatRestore(restore: IRestore, trans: TranslationBundle): string {
  const { bytesBack, bytesTotal, leftS } = restore;
  const back = trans.__('%1 of %2', formatBytes(bytesBack), formatBytes(bytesTotal));
  return leftS === null
    ? trans.__('The memory of this notebook comes back to the GPU: %1.', back)
    : trans.__(
        'The memory of this notebook comes back to the GPU: %1, about %2 more.',
        back,
        formatDuration(Math.max(1, leftS), trans)
      );
}

/** The same line, once the cell goes on after a pause. */
export function formatGoesOn(trans: TranslationBundle): string {
  return trans.__('The cell goes on.');
}

/** `Waiting for the GPU: 2nd of 4, about 20–45 s.` */
function formatPlace(
  kernel: IKernel,
  queued: readonly IDevice[],
  sinceS: number,
  trans: TranslationBundle
): string {
  const { position, wait } = kernel;
  const long = Math.max(0, ...queued.map(device => device.queue.length));
  const known = [
    position === null
      ? ''
      : trans.__('%1 of %2', ordinal(position, trans), Math.max(long, position)),
    wait?.earliestS === null || wait?.latestS === null
      ? trans.__('nobody can say how long')
      : wait
        ? wait.latestS - sinceS < 1
          ? trans.__('any moment now')
          : formatRange(wait.earliestS - sinceS, wait.latestS - sinceS, trans)
        : ''
  ].filter(Boolean);
  return known.length > 0
    ? trans.__('Waiting for the GPU: %1.', known.join(', '))
    : trans.__('Waiting for the GPU.');
}

/** `Paused after 30 s, goes on in about 10–20 s; your share is a third of the GPU.` */
function formatPaused(wait: IWait, sinceS: number, trans: TranslationBundle): string {
  const used = formatRounded(wait.usedS, trans);
  const share = formatPart(wait.share, trans);
  if (wait.earliestS === null || wait.latestS === null) {
    return isAllMine(wait)
      ? trans.__('Paused after %1, nobody can say until when.', used)
      : trans.__('Paused after %1, nobody can say until when; your share is %2.', used, share);
  }
  const range = formatRange(wait.earliestS - sinceS, wait.latestS - sinceS, trans);
  return isAllMine(wait)
    ? trans.__('Paused after %1, goes on in %2.', used, range)
    : trans.__('Paused after %1, goes on in %2; your share is %3.', used, range, share);
}

function formatInTheWay(
  holder: IHolder,
  me: string,
  sinceS: number,
  trans: TranslationBundle
): string {
  const { name, owner } = holder;
  const known = (name || owner) === UNNAMED ? '' : name || owner;
  const whose = name && owner && owner !== name && owner !== me ? `${owner}: ${name}` : known;
  // A name of another script keeps to itself, and does not turn the sentence around.
  const who = whose ? `\u2068${whose}\u2069` : trans.__('Another user');
  return holder.holdLeftS > sinceS
    ? trans.__(
        '%1 has reserved it for %2 more.',
        who,
        formatDuration(holder.holdLeftS - sinceS, trans)
      )
    : trans.__('%1 is using it (%2).', who, formatDuration(holder.heldS + sinceS, trans));
}

/** 1st, 2nd, 3rd, 4th, 11th, 21st. A translation may write all of them alike. */
export function ordinal(count: number, trans: TranslationBundle): string {
  const teen = count % 100 >= 11 && count % 100 <= 13;
  switch (teen ? 0 : count % 10) {
    case 1:
      return trans.__('%1st', count);
    case 2:
      return trans.__('%1nd', count);
    case 3:
      return trans.__('%1rd', count);
    default:
      return trans.__('%1th', count);
  }
}

/** A range without a false precision: `about 20–45 s`, `at most 45 s`. */
export function formatRange(fromS: number, toS: number, trans: TranslationBundle): string {
  const range = formatShortRange(fromS, toS, trans);
  return toS < 1 || rounded(Math.max(0, fromS)) === 0 ? range : trans.__('about %1', range);
}

/** The same where space is short: `20–45 s`. */
export function formatShortRange(fromS: number, toS: number, trans: TranslationBundle): string {
  if (toS < 1) {
    return trans.__('a moment');
  }
  const [low, high] = [rounded(Math.max(0, fromS)), rounded(toS)];
  const unit = unitOf(high);
  if (low === 0) {
    return trans.__('at most %1', formatRounded(high, trans));
  }
  if (low === high) {
    return formatRounded(high, trans);
  }
  if (unitOf(low) === unit) {
    return trans.__('%1–%2', low / SECONDS[unit], formatRounded(high, trans));
  }
  return trans.__('%1 to %2', formatRounded(low, trans), formatRounded(high, trans));
}

const SECONDS = { s: 1, min: 60, h: 3600 } as const;
type Unit = keyof typeof SECONDS;

function unitOf(seconds: number): Unit {
  return seconds < 100 ? 's' : seconds < 6000 ? 'min' : 'h';
}

/** To two digits of its unit. */
function rounded(seconds: number): number {
  const unit = SECONDS[unitOf(seconds)];
  const count = seconds / unit;
  const step = count >= 1 ? 10 ** Math.max(0, Math.floor(Math.log10(count)) - 1) : 1;
  return Math.round(count / step) * step * unit;
}

function formatRounded(seconds: number, trans: TranslationBundle): string {
  const whole = Math.max(1, rounded(seconds));
  const unit = unitOf(whole);
  const count = Math.round(whole / SECONDS[unit]);
  switch (unit) {
    case 's':
      return trans.__('%1 s', count);
    case 'min':
      return trans.__('%1 min', count);
    case 'h':
      return trans.__('%1 h', count);
  }
}

/** `a third of the GPU`, `2/5 of the GPU` where it is near such a fraction, else in per cent. */
export function formatPart(part: number, trans: TranslationBundle): string {
  for (let whole = 2; whole <= 12; whole += 1) {
    const count = Math.round(part * whole);
    if (count > 0 && Math.abs(part - count / whole) <= 0.01) {
      return formatFraction(count, whole, trans);
    }
  }
  return trans.__('%1 % of the GPU', Math.round(100 * part));
}

function formatFraction(count: number, whole: number, trans: TranslationBundle): string {
  switch (count === 1 ? whole : 0) {
    case 2:
      return trans.__('half of the GPU');
    case 3:
      return trans.__('a third of the GPU');
    case 4:
      return trans.__('a quarter of the GPU');
    default:
      return trans.__('%1 of the GPU', `${count}/${whole}`);
  }
}

/** Enough of the UUID to tell twins apart, as `nvidia-smi -L` begins it: `GPU-0123abcd`. */
export function formatDeviceId(device: IDevice): string {
  return `GPU-${device.id.slice(0, 8)}`;
}

/** What a tenant is called: its name where the caller may see it, else whose it is. */
export function formatTenant(tenant: ITenant, trans: TranslationBundle): string {
  const name = tenant.name || tenant.owner;
  return name && name !== UNNAMED ? name : trans.__('another user');
}

/** Whose a tenant is, beside its name; empty where the name is already all that is known. */
export function formatOwner(tenant: ITenant, trans: TranslationBundle): string {
  if (tenant.mine) {
    return trans.__('you');
  }
  return tenant.name && tenant.owner !== tenant.name ? tenant.owner : '';
}

/** A kernel is called as its notebook is; without one, by its own name. */
export function formatKernel(kernel: IKernel): string {
  return kernel.path.split('/').pop() || kernel.name || kernel.kernelId.slice(0, 8);
}

/** Its class, where it is not the one that everybody has; else empty. */
export function formatClass({ runsAs }: Pick<ITenant, 'runsAs'>, trans: TranslationBundle): string {
  switch (runsAs) {
    case '':
    case 'interactive':
      return '';
    case 'batch':
      return trans.__('batch');
    case 'realtime':
      return trans.__('realtime');
    default:
      return runsAs;
  }
}

/** What is left of a turn; empty once it is over, for it goes on where nobody else may have it. */
export function formatTurnLeft(leftS: number, trans: TranslationBundle): string {
  return leftS < 1 ? '' : trans.__('at most %1 left', formatDuration(Math.ceil(leftS), trans));
}

export function formatKernelState(kernel: IKernel, trans: TranslationBundle): string {
  const state = formatState(kernel, trans);
  return kernel.frozen ? trans.__('%1, frozen', state) : state;
}

function formatState(kernel: IKernel, trans: TranslationBundle): string {
  switch (kernel.state) {
    case 'holds':
      return trans.__('Has the GPU');
    case 'waits':
      return kernel.position
        ? trans.__('Number %1 in the queue', kernel.position)
        : trans.__('Waits');
    case 'idle':
      return trans.__('Idle');
    case 'unshared':
      return trans.__('Not shared');
    case 'failed':
      return trans.__('Failed');
  }
}

/** What an administrator has done to the device; empty for one that is open. */
export function formatMode(device: IDevice, trans: TranslationBundle): string {
  switch (device.mode) {
    case 'open':
      return '';
    case 'paused':
      return trans.__('Paused by an administrator: cells wait, and lose nothing.');
    case 'drained':
      return trans.__('Drained by an administrator: cells wait, and memory is parked.');
  }
}

/** Why: the server's sentence, or what the state itself means. */
export function formatReason(kernel: IKernel, trans: TranslationBundle): string {
  if (kernel.reason) {
    return kernel.reason;
  }
  switch (kernel.state) {
    case 'holds':
      return kernel.holdLeftS > 0
        ? trans.__(
            'It keeps the GPU between cells. Release it, or run “%gpushare hold 0”, to end that.'
          )
        : trans.__(
            'Its cell uses the GPU. While others wait, a long cell is paused after each turn and loses nothing.'
          );
    case 'waits':
      return trans.__('Another cell has the GPU. This one goes on by itself when its turn comes.');
    case 'idle':
      return trans.__('It asks for the GPU when a cell needs it.');
    case 'unshared':
      return trans.__('This kernel takes no turns. Restart it to share the GPU.');
    case 'failed':
      return trans.__('Its CUDA context is broken. Restart the kernel to use the GPU again.');
  }
}

/** What is wrong and what to do, and how to see it without a GPU. An older server does not say it. */
export function formatNoGpu({ noGpu }: IState, trans: TranslationBundle): string {
  const why = noGpu || trans.__('No GPU is shared here: “%gpushare doctor” in a cell tells why.');
  const instead = trans.__(
    '“jupyter gpushare try” in a terminal shows the sharing on a simulated GPU.'
  );
  return `${why} ${instead}`;
}

/** One sentence on what is wrong and what to do. */
export function formatProblem(problem: Problem, trans: TranslationBundle): string {
  switch (problem.kind) {
    case 'version':
      return trans.__(
        'This panel and jupyter-gpushare on the server do not fit together (version %1 here, %2 there): reload the page, and if that does not help, restart the Jupyter server after an upgrade.',
        STATE_VERSION,
        problem.theirs
      );
    case 'not-installed':
      return trans.__(
        'GPU sharing is switched off on this Jupyter server: its server extension is not running, and notebooks use the GPU like any other program.'
      );
    case 'unreachable':
      return trans.__(
        'The Jupyter server does not answer: what is shown here may be out of date until it does.'
      );
    case 'not-allowed':
      return trans.__(
        'The Jupyter server does not let you do this: reload the page to log in again, or ask whoever the server belongs to.'
      );
    case 'malformed':
      return trans.__(
        'The server sent a state that this panel cannot read: reload the page, and if that does not help, upgrade jupyter-gpushare.'
      );
    case 'refused':
      return problem.message;
  }
}
