// Login and logout. A key in the URL fragment is never sent to a server: it is read from there, and
// removed from the URL first.

import { proof } from "./kit/token.js";

const login = document.querySelector("#login");
const logout = document.querySelector("#logout");
const said = document.querySelector("#said");
const next = returnPath();
// The service's own message is for API clients that send the key in a header.
const BAD_KEY = "Invalid, expired or revoked API key. Ask your administrator for a new one.";

async function ask(method, path, body) {
  const content = body ? { "content-type": "application/json" } : {};
  const headers = { ...content, ...proof(method) };
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  const result = await answer.json();
  if (!answer.ok) throw new Error(answer.status === 401 ? BAD_KEY : result.detail);
  return result;
}

function show(me) {
  login.hidden = me !== null;
  logout.hidden = me === null;
  document.querySelector("#holder").textContent = me?.holder ?? "";
  document.querySelector("#scopes").textContent = me?.scopes.join(", ") ?? "";
}

async function attempt(action) {
  said.textContent = "";
  try {
    await action();
  } catch (error) {
    said.textContent = error.message;
  }
}

/** Reloads after login: a page served before it has no CSRF token. */
async function logIn(key) {
  await ask("POST", "/login", { key });
  location.replace(next ?? location.pathname);
}

/** The page that redirected here; only paths of this origin are accepted. */
function returnPath() {
  const path = new URLSearchParams(location.search).get("next") ?? "";
  return /^\/(?![/\\])/.test(path) ? path : null;
}

login.addEventListener("submit", (event) => {
  event.preventDefault();
  const key = document.querySelector("#key").value.trim();
  attempt(() => logIn(key));
});

logout.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    await ask("POST", "/logout");
    show(null);
  });
});

const given = location.hash.slice(1);
if (given) {
  history.replaceState(null, "", location.pathname + location.search);
  attempt(() => logIn(given));
} else {
  ask("GET", "/api/me").then(show, () => show(null));
}
