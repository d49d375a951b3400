/** Timelines as the server sends them. */

export const DEVICE_ID = '0123456789abcdef0123456789abcdef';

export function timeline(fields: object = {}): object {
  return {
    version: 1,
    window_s: 900,
    grain_s: 1,
    sample_s: 2,
    tenants: [
      { id: 't1', name: 'train.ipynb', owner: 'alice', own: true },
      { id: 'other-2', name: 'another user', owner: 'another user', own: false }
    ],
    devices: [
      {
        id: DEVICE_ID,
        turns: [turn(0, -900, -450), turn(1, -450, -225), turn(0, -60, null)],
        waits: [
          { begin_s: -500, waiting: 2 },
          { begin_s: -450, waiting: 0 }
        ],
        samples: [
          { begin_s: -10, utilization: 80, bytes_used: 2 * 1024 ** 3 },
          { begin_s: -8, utilization: 20, bytes_used: 1024 ** 3 }
        ]
      }
    ],
    ...fields
  };
}

export function turn(
  tenant: number,
  begin: number,
  end: number | null,
  fields: object = {}
): object {
  return { tenant, begin_s: begin, end_s: end, part: 1, ...fields };
}
