/**
 * Requests to the service.
 *
 * Each write has an idempotency key, so it can be retried safely when its response is lost.
 */

import { proof } from "./token.js";

const TIMEOUT_MS = 8000;
const PAUSES_MS = [300, 1000, 2500];
const BUSY = new Set([429, 503]);

/** The service refused the request; the message is for users. */
export class Problem extends Error {
  /** @param {number} status @param {Record<string, any>} body */
  constructor(status, body) {
    super(body.detail ?? `The service responded with ${status}.`);
    this.status = status;
    this.code = body.code ?? "unknown";
    this.body = body;
  }
}

/** No response. */
export class Unreachable extends Error {
  constructor() {
    super("Daybook is unreachable: check the service and the network connection.");
  }
}

/** @param {string} path @returns {Promise<any>} */
export function read(path) {
  return once("GET", path, {});
}

/**
 * Sends a write, with retries for a few seconds.
 *
 * @param {"POST" | "PUT" | "PATCH" | "DELETE"} method
 * @param {string} path
 * @param {object} [body]
 * @param {string} [key] of a write that may have been sent before the page was loaded
 * @returns {Promise<any>} null for an empty response
 */
export async function write(method, path, body, key = identifier()) {
  const headers = { "Idempotency-Key": key };
  for (const pause of PAUSES_MS) {
    try {
      return await once(method, path, headers, body);
    } catch (error) {
      if (error instanceof Problem && !BUSY.has(error.status)) throw error;
      await new Promise((resume) => setTimeout(resume, pause));
    }
  }
  return once(method, path, headers, body);
}

/** 128 random bits; `crypto.randomUUID` is there only on HTTPS. */
export function identifier() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Redirects to the login page, which returns here. */
function logIn() {
  const from = location.pathname + location.search + location.hash;
  location.assign(`/login?next=${encodeURIComponent(from)}`);
}

/**
 * @param {string} method
 * @param {string} path
 * @param {Record<string, string>} headers
 * @param {object} [body]
 */
async function once(method, path, headers, body) {
  /** @type {Record<string, string>} */
  const content = body === undefined ? {} : { "Content-Type": "application/json" };
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), TIMEOUT_MS);
  try {
    const response = await fetch(path, {
      method,
      headers: { ...headers, ...content, ...proof(method) },
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      signal: abort.signal,
    });
    const payload = response.status === 204 ? null : await response.json();
    if (response.status === 401) logIn();
    if (!response.ok) throw new Problem(response.status, payload);
    return payload;
  } catch (error) {
    throw error instanceof Problem ? error : new Unreachable();
  } finally {
    clearTimeout(timer);
  }
}
