/** Local storage shared by all tabs, or memory where storage is forbidden. */

/** @type {Map<string, string>} */
const instead = new Map();

/** @param {string} key @returns {any} null if missing or unreadable */
export function load(key) {
  try {
    const text = localStorage.getItem(key) ?? instead.get(key) ?? null;
    return text === null ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

/** @param {string} key @param {unknown} value */
export function save(key, value) {
  const text = JSON.stringify(value);
  try {
    localStorage.setItem(key, text);
  } catch {
    // Private windows and full disks: kept in memory for the life of the tab.
    instead.set(key, text);
  }
}

/** @param {string} key */
export function remove(key) {
  instead.delete(key);
  try {
    localStorage.removeItem(key);
  } catch {
    // It was never stored.
  }
}
