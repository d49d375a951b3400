const PLACE = 'jupyter-gpushare:told';
/** Old ones are forgotten, so that the list stays short. */
const KEPT = 50;

/** What has been told in any page of this browser, so that no other page tells it again. */
export class Claims {
  /** `storage` may throw, as that of a browser that keeps nothing does. */
  constructor(private readonly _storage: () => Pick<Storage, 'getItem' | 'setItem'>) {}

  /** Whether this page is the first; from now on another one is not. */
  take(key: string): boolean {
    try {
      const storage = this._storage();
      const told: unknown = JSON.parse(storage.getItem(PLACE) ?? '[]');
      const keys = Array.isArray(told) ? told.filter(each => typeof each === 'string') : [];
      if (keys.includes(key)) {
        return false;
      }
      storage.setItem(PLACE, JSON.stringify([...keys, key].slice(-KEPT)));
    } catch {
      // A browser that keeps nothing for us: better told twice than never.
    }
    return true;
  }
}
