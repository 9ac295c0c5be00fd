// Who is looking, and what they may do: nobody is offered what the server would refuse.

import { get } from "./api.js";

export const ROLES = ["reader", "writer", "admin"];
let asked = null;

/** `{name, role}`, asked for once; `forget` when there is another token. */
export function whoAmI() {
  asked ??= get("/v1/me").catch((error) => {
    asked = null;
    throw error;
  });
  return asked;
}

export const forget = () => (asked = null);

export const may = (me, role) => ROLES.indexOf(me.role) >= ROLES.indexOf(role);

/** Whether somebody may change, share and drop a query. */
export const owns = (me, { owner }) => may(me, "admin") || owner?.toLowerCase() === me.name.toLowerCase();

/** An element that is hidden from those who may not. */
export function only(role, element) {
  element.hidden = true;
  whoAmI().then((me) => (element.hidden = !may(me, role)), () => {});
  return element;
}
