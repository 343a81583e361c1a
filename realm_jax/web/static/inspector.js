// Without this file every form works by loading a page; with it only the main part is exchanged.
"use strict";

const status = document.getElementById("status");

function isBusy(busy) {
  document.getElementById("main").setAttribute("aria-busy", String(busy));
  status.textContent = busy ? "Asking" : "";
}

function openEditors() {
  return [...document.querySelectorAll("details[open]")].map((one) => one.className);
}

function reason(refusal) {
  try {
    return JSON.parse(refusal).detail;
  } catch {
    return undefined;
  }
}

// Shows an answer as it is written, and returns the page that has the whole.
async function streamed(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const shown = document.createElement("p");
  shown.className = "filled";
  shown.dir = "auto";
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the connection was closed");
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events.filter((one) => !one.startsWith(":"))) {  // those are comments
      const [name, text] = event.split("\n").map((line) => line.replace(/^\w+: /, ""));
      const data = JSON.parse(text);
      if (name === "page") return data;
      if (name === "error") throw new Error(data.detail);
      if (!shown.isConnected) {
        for (const old of document.querySelectorAll("#results, .filled, .cards-title, .cards")) old.remove();
        // Not form.after: that is the field of this name.
        document.querySelector("form.ask").insertAdjacentElement("afterend", shown);
      }
      shown.textContent = (data.replaces ? "" : shown.textContent) + data.text;
    }
  }
}

let asking = new AbortController();

async function exchange(url, options, { push }) {
  asking.abort();  // who asks again waits for the former answer no more
  asking = new AbortController();
  const signal = options.method === "POST" ? undefined : asking.signal;
  isBusy(true);
  try {
    const response = await fetch(url, { ...options, signal });
    const isStream = response.headers.get("content-type").startsWith("text/event-stream");
    const text = await (isStream ? streamed(response) : response.text());
    const page = new DOMParser().parseFromString(text, "text/html");
    const main = page.getElementById("main");
    if (!main) throw new Error(reason(text) ?? response.statusText);
    const refused = page.querySelector(".refusal");
    if (refused && options.method === "POST") {  // what was typed stays
      document.querySelector(".refusal")?.remove();
      document.getElementById("main").prepend(refused);
      isBusy(false);
      refused.focus();
      return;
    }
    const open = openEditors().filter((name) => name !== "edit" && name !== "add");
    document.getElementById("main").replaceWith(document.adoptNode(main));
    for (const name of open) document.querySelector(`details.${name}`)?.setAttribute("open", "");
    document.title = page.title;
    if (push) history.pushState(null, "", response.url);
    isBusy(false);
    const result = document.querySelector("[data-result]");
    const refusal = document.querySelector(".refusal");
    status.textContent = refusal ? "" : (result?.dataset.result ?? "");
    (refusal ?? result ?? document.getElementById("main")).focus();
  } catch (error) {
    if (signal?.aborted) return;
    isBusy(false);
    status.textContent = `There is no answer: ${error.message}`;
    status.classList.remove("unseen");
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("form[data-live]")) return;
  event.preventDefault();
  const fields = new URLSearchParams(new FormData(form));
  // Not form.action: that is the field of this name.
  const action = form.getAttribute("action");
  if (form.getAttribute("method") === "get") {
    for (const [name, value] of [...fields]) if (!value) fields.delete(name);
    const headers = action === "/answer" ? { accept: "text/event-stream, text/html" } : {};
    exchange(`${action}?${fields}`, { headers }, { push: true });
  } else {
    exchange(action, { method: "POST", body: fields }, { push: false });
  }
});

// The direction of a query is that of its first letter outside [MASK].
document.addEventListener("input", (event) => {
  if (event.target.id !== "q") return;
  const probe = document.createElement("bdi");
  probe.textContent = event.target.value.replaceAll("[MASK]", "");
  document.body.append(probe);
  event.target.dir = getComputedStyle(probe).direction;
  probe.remove();
});

function isTyping(node) {
  return node.matches("input, textarea, select") || node.isContentEditable;
}

document.addEventListener("keydown", (event) => {
  const question = document.getElementById("q");
  const isBare = !(event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target));
  if (event.key === "/" && isBare) {
    event.preventDefault();
    if (question) question.select();
    else location.href = "/";
  }
  if (event.target.id === "q" && event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    event.target.form.requestSubmit();
  }
});

document.addEventListener("click", (event) => {
  const example = event.target.closest("[data-text]");
  if (!example) return;
  event.preventDefault();  // it would be asked without the other fields
  document.getElementById("q").value = example.dataset.text;
  const target = document.getElementById("answer");
  if (target) target.value = example.dataset.answer;
  document.getElementById("q").form.requestSubmit();
});

// A page that takes files takes them wherever they are dropped on it; the browser would open them.
for (const kind of ["dragover", "drop"]) {
  document.addEventListener(kind, (event) => {
    const files = document.querySelector("input[type=file]");
    if (!files || !event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    if (kind === "dragover") return;
    files.files = event.dataTransfer.files;
    files.closest("details")?.setAttribute("open", "");
    files.form.querySelector("button").focus();
  });
}

window.addEventListener("popstate", () => exchange(location.href, {}, { push: false }));
