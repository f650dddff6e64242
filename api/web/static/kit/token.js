/**
 * The CSRF token of the session: the service writes it into the page and requires it with every
 * write. Other sites can send requests, but cannot read it.
 */

const token = document.querySelector('meta[name="csrf-token"]')?.getAttribute("content") ?? "";

/** @param {string} method @returns {Record<string, string>} the header with the token */
export function proof(method) {
  return method === "GET" || token === "" ? {} : { "X-CSRF-Token": token };
}
