// Logging in and out. A key that stands behind the # of the address was never sent to anybody: it
// is taken from there, and the address is cleaned before anything else happens.

import { proof } from "./kit/token.js";

const login = document.querySelector("#login");
const logout = document.querySelector("#logout");
const said = document.querySelector("#said");
const next = whereFrom();
// What the service says of a bad key is for who sends one in a header.
const BAD_KEY = "That key is not good here, or not any more: ask whoever gave it to you for another.";

async function ask(method, path, body) {
  const content = body ? { "content-type": "application/json" } : {};
  const headers = { ...content, ...proof(method) };
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  const told = await answer.json();
  if (!answer.ok) throw new Error(answer.status === 401 ? BAD_KEY : told.detail);
  return told;
}

function show(me) {
  login.hidden = me !== null;
  logout.hidden = me === null;
  document.querySelector("#holder").textContent = me?.holder ?? "";
  document.querySelector("#scopes").textContent = me?.scopes.join(", ") ?? "";
}

async function attempt(deed) {
  said.textContent = "";
  try {
    await deed();
  } catch (error) {
    said.textContent = error.message;
  }
}

/** A page that was made before is not one of whoever has logged in: it has no token. */
async function logIn(key) {
  await ask("POST", "/login", { key });
  location.replace(next ?? location.pathname);
}

/** The page from which somebody was sent here; only one of ours is gone back to. */
function whereFrom() {
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
