// Opens a page in headless Chromium: browser.mjs PROFILE URL WIDTH SCRIPT [PNG] writes what the script, an async
// function's body, returns as JSON; and a picture of the page.
import { spawn } from "node:child_process";
import { writeFile } from "node:fs/promises";

const [profile, url, width, script, png] = process.argv.slice(2);
const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", `--user-data-dir=${profile}`];
const camera = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"];
const chromium = spawn("chromium", [...flags, ...camera, "--remote-debugging-port=0", "about:blank"]);
process.on("exit", () => chromium.kill());

const port = await new Promise((resolve, reject) => {
  let text = "";
  chromium.stderr.on("data", (data) => {
    text += data;
    const found = /DevTools listening on ws:\/\/[^:]+:(\d+)/.exec(text);
    if (found) resolve(found[1]);
  });
  chromium.on("exit", () => reject(new Error(text)));
});

async function page() {
  const targets = await (await fetch(`http://127.0.0.1:${port}/json`)).json();
  return targets.find(({ type }) => type === "page") ?? page();
}

const socket = new WebSocket((await page()).webSocketDebuggerUrl);
await new Promise((resolve) => socket.addEventListener("open", resolve));
const waiting = new Map();
socket.addEventListener("message", ({ data }) => {
  const { id, result, error } = JSON.parse(data);
  if (id) waiting.get(id)(error ? Promise.reject(new Error(error.message)) : result);
});
const ask = (method, params = {}) =>
  new Promise((resolve) => {
    const id = waiting.size + 1;
    waiting.set(id, resolve);
    socket.send(JSON.stringify({ id, method, params }));
  });

await ask("Emulation.setDeviceMetricsOverride", { width: Number(width), height: 844, deviceScaleFactor: 1, mobile: false });
await ask("Page.navigate", { url });
const expression = `(async () => { ${script} })()`;
const { result, exceptionDetails } = await ask("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
if (png) await writeFile(png, (await ask("Page.captureScreenshot")).data, "base64");
const answer = JSON.stringify(exceptionDetails ? { failed: exceptionDetails.exception.description } : result.value);
process.stdout.write(answer, () => process.exit());
