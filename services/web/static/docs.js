// Sends the request of a form of /docs with the token that was typed in, and prints the answer as text.
"use strict";
const MAX_CHARS = 200_000; // a live tail does not end
let running = null;

function requestOf(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  const headers = {};
  let body;
  for (const field of form.querySelectorAll("[data-in]")) {
    const value = field.value.trim();
    if (field.dataset.in === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(value));
    else if (value === "") continue;
    else if (field.dataset.in === "query") query.append(field.name, value);
    else if (field.dataset.in === "header") headers[field.name] = value;
    else [body, headers["Content-Type"]] = [value, field.dataset.type];
  }
  const token = document.getElementById("token").value.trim();
  if (token) headers.Authorization = `Bearer ${token}`;
  const address = query.size ? `${path}?${query}` : path;
  return [address, { method: form.dataset.method, headers, body, credentials: "omit", cache: "no-store" }];
}

function readable(text, type) {
  try {
    return type.includes("json") ? JSON.stringify(JSON.parse(text), null, 2) : text;
  } catch {
    return text; // a line a record
  }
}

async function send(form) {
  running?.abort(); // one request at a time: sending another ends a live tail
  const mine = (running = new AbortController());
  const out = form.querySelector("pre");
  out.hidden = false;
  out.textContent = "…";
  try {
    const [address, options] = requestOf(form);
    const answer = await fetch(address, { ...options, signal: mine.signal });
    const head = `${answer.status} ${answer.statusText}\n\n`;
    let text = "";
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done && text.length < MAX_CHARS; part = await reader.read()) {
      text += part.value;
      out.textContent = head + text;
    }
    if (text.length >= MAX_CHARS) mine.abort();
    else out.textContent = head + readable(text, answer.headers.get("Content-Type") ?? "");
  } catch (error) {
    out.textContent += `\n${error.message}`;
  }
}

addEventListener("submit", (event) => {
  event.preventDefault();
  send(event.target);
});
