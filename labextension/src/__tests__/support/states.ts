/** States as the server sends them. */

export function device(fields: object = {}): object {
  return {
    id: '0123456789abcdef0123456789abcdef',
    name: 'Test GPU',
    bytes_total: 8 * 1024 ** 3,
    bytes_used: 2 * 1024 ** 3,
    lost: false,
    holder: null,
    queue: [],
    ...fields
  };
}

export function holder(fields: object = {}): object {
  return { name: 'train.ipynb', owner: 'alice', mine: true, tenant_id: 't1', held_s: 5, ...fields };
}

export function waiter(fields: object = {}): object {
  return {
    position: 1,
    name: 'plot.ipynb',
    owner: 'bob',
    mine: false,
    tenant_id: 't2',
    waited_s: 3,
    ...fields
  };
}

export function kernel(fields: object = {}): object {
  return {
    kernel_id: 'k1',
    name: 'python3',
    path: 'work/train.ipynb',
    tenant_id: 't1',
    state: 'idle',
    bytes_allocated: 0,
    memory: [],
    position: null,
    reason: '',
    ...fields
  };
}

export function memory(fields: object = {}): object {
  return {
    device: '0123456789abcdef0123456789abcdef',
    bytes_resident: 1024 ** 3,
    bytes_parked: 0,
    bytes_fixed: 0,
    cap_bytes: 0,
    ...fields
  };
}

export function state(fields: object = {}): object {
  return {
    version: 1,
    scheduler: 'up',
    message: '',
    user: 'alice',
    devices: [device()],
    kernels: [],
    ...fields
  };
}
