// Requests to Weir's API, with the token, and errors as people read them.

const KEY = "weir-token";
const TIMEOUT_MS = 10_000;

export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

export function setToken(token) {
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
}

export function headers(others = {}) {
  const token = sessionStorage.getItem(KEY);
  return token === null ? others : { ...others, authorization: `Bearer ${token}` };
}

export async function get(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "");
  const text = new URLSearchParams(given).toString();
  return answered(text ? `${path}?${text}` : path, { headers: headers() });
}

export const post = (path, body) =>
  answered(path, { method: "POST", headers: headers({ "content-type": "application/json" }), body: JSON.stringify(body) });

async function answered(path, options) {
  const response = await fetch(path, { ...options, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new ApiError(response.status, body?.detail ?? body?.title ?? `Weir answered ${response.status}`);
  if (body === null) throw new ApiError(response.status, "Weir's answer is no JSON");
  return body;
}
