/** Whether a request takes a reason, according to the OpenAPI description. */

import { read } from "../kit/client.js";

/** @type {Promise<any> | null} */
let described = null;

/** @param {string} path of a POST @returns {Promise<boolean>} */
export async function takesReason(path) {
  described ??= read("/openapi.json");
  const { paths, components } = await described;
  const schema = paths[path]?.post?.requestBody?.content["application/json"]?.schema;
  const name = schema?.$ref?.split("/").pop();
  return "reason" in (components.schemas[name]?.properties ?? {});
}
