/** Creates elements without markup strings, so that user input stays text. */

/**
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes] null and false are omitted
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function element(tag, attributes = {}, ...children) {
  return /** @type {HTMLElement} */ (assemble(document.createElement(tag), attributes, children));
}

/**
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export function drawing(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  return /** @type {SVGElement} */ (assemble(made, attributes, children));
}

/** @param {Element} made @param {Record<string, unknown>} attributes @param {(Node | string)[]} children */
function assemble(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on") && typeof value === "function") {
      made.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    } else if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(name, value === true ? "" : String(value));
    }
  }
  made.append(...children);
  return made;
}

/** Sets a text only if it differs, which avoids a layout. */
export function setText(/** @type {Element} */ where, /** @type {string} */ text) {
  if (where.textContent !== text) where.textContent = text;
}

/**
 * Reconciles the children of `parent` with `items`, reusing elements by key.
 *
 * @template T
 * @param {Element} parent
 * @param {Iterable<T>} items
 * @param {(item: T) => string} key
 * @param {(item: T, index: number) => Element} make
 * @param {(child: any, item: T, index: number) => void} update
 */
export function arrange(parent, items, key, make, update) {
  const known = new Map([...parent.children].map((child) => [child.getAttribute("data-key"), child]));
  let index = 0;
  for (const item of items) {
    const name = key(item);
    const child = known.get(name) ?? make(item, index);
    known.delete(name);
    child.setAttribute("data-key", name);
    update(child, item, index);
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
    index += 1;
  }
  for (const left of known.values()) left.remove();
}

/** @param {string} selector @param {ParentNode} [within] @returns {any} */
export function find(selector, within = document) {
  const found = within.querySelector(selector);
  if (found === null) throw new Error(`There is no ${selector} on this page.`);
  return found;
}
