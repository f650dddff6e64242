/**
 * What the service wrote into this page for whoever is logged in, and wants to see again with every
 * change: no other site can read it, though it may make a browser ask.
 */

const token = document.querySelector('meta[name="csrf-token"]')?.getAttribute("content") ?? "";

/** @param {string} method @returns {Record<string, string>} the headers that show it */
export function proof(method) {
  return method === "GET" || token === "" ? {} : { "X-CSRF-Token": token };
}
